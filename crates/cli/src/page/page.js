// Draws the view that perfrun sends, and opens the report when the run has ended. Text is always set as text,
// never as markup.
"use strict";

const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function text(tag, words, className = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  element.className = className;
  return element;
}

function rate(bits) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  let unit = 0;
  for (; bits >= 1000 && unit < units.length - 1; unit++) bits /= 1000;
  return `${bits.toPrecision(3)} ${units[unit]}`;
}

function dots(values, largest) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 400 16");
  svg.setAttribute("aria-hidden", "true");
  for (const value of values) {
    const dot = document.createElementNS(SVG, "circle");
    dot.setAttribute("cx", largest > 0 ? (4 + (value / largest) * 392).toFixed(1) : 4);
    dot.setAttribute("cy", 8);
    dot.setAttribute("r", 4);
    svg.append(dot);
  }
  return svg;
}

function row(cell, series, largest) {
  const line = document.createElement("tr");
  const name = text("th", cell.id);
  name.scope = "row";
  const strip = text("td", "", "dots");
  if (series) strip.append(dots(series.values, largest.get(series.metric)));
  if (cell.failed > 0) strip.append(text("span", `${cell.failed} failed`, "failed"));
  line.append(name, text("td", series?.metric ?? ""), text("td", series?.median ?? "", "value"), strip);
  return line;
}

function cells(view) {
  const largest = new Map();
  for (const series of view.cells.flatMap((cell) => cell.series)) {
    largest.set(series.metric, Math.max(largest.get(series.metric) ?? 0, ...series.values));
  }
  const rows = view.cells.flatMap((cell) =>
    cell.series.length > 0 ? cell.series.map((series) => row(cell, series, largest)) : [row(cell, null, largest)],
  );
  at("cells").replaceChildren(...rows);
}

function curve(points) {
  at("curve").hidden = points.length < 2;
  if (points.length < 2) return;
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const largest = Math.max(...points.map(([, bits]) => bits), 1);
  const place = ([seconds, bits]) => `${((seconds - first) / (last - first)) * 100},${100 - (bits / largest) * 100}`;
  at("line").setAttribute("points", points.map(place).join(" "));
  at("rate").textContent = `${rate(points[points.length - 1][1])} now, ${rate(largest)} at most, over ${Math.round(last - first)} s`;
}

function draw(view) {
  document.title = `${view.name} ${view.ended}/${view.trials}`;
  at("name").textContent = view.name;
  at("stage").textContent = `${view.stage}, ${view.ended} of ${view.trials} trials`;
  at("failed").textContent = view.failed > 0 ? `${view.failed} failed` : "";
  at("progress").value = view.trials > 0 ? view.ended / view.trials : 0;
  const share = view.fraction === null ? "" : `, ${Math.round(view.fraction * 100)} %`;
  at("now").textContent = `${view.now}${share}` || "\u00a0";
  curve(view.curve);
  cells(view);
}

const events = new EventSource("events");
events.onmessage = (event) => {
  const view = JSON.parse(event.data);
  draw(view);
  if (view.stage === "ended") {
    events.close();
    location.assign("report");
  }
};
events.onerror = () => {
  at("stage").textContent = "perfrun does not answer: it has ended, or was stopped";
};
