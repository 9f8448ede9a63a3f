//! When the last run of a schedule was due, when one last succeeded, when the next success is due, and how
//! the last one ended.
//!
//! Only the operator that leads exports them, as it does runs.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::{ResourceExt, runtime::reflector::Store};
use parking_lot::Mutex;
use perfrun_api::schedule::{PerfSchedule, Timetable};
use perfrun_contract::metrics::schedule;
use perfrun_metrics::encode_samples;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::api::watched::WatchedSchedule;

/// Exports schedules as they are at the time of a scrape.
#[derive(Clone, Default)]
pub(super) struct Schedules(Arc<Mutex<Option<Store<WatchedSchedule>>>>);

impl Schedules {
    /// Sets the schedules to export.
    pub(super) fn export(&self, schedules: Option<Store<WatchedSchedule>>) {
        *self.0.lock() = schedules;
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedules").finish_non_exhaustive()
    }
}

impl Collector for Schedules {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let schedules = self.0.lock().as_ref().map(Store::state).unwrap_or_default();
        let schedules: Vec<_> = schedules
            .iter()
            .filter_map(|schedule| schedule.0.as_ref().ok())
            .collect();
        let times = [
            (schedule::LAST_DUE, last_due as TimeOf),
            (schedule::LAST_SUCCESS, last_success),
            (schedule::SUCCESS_DUE, success_due),
        ];
        for (family, time) in times {
            let samples = schedules.iter().filter_map(|schedule| {
                let seconds = time(schedule)?.as_millisecond() as f64 / 1e3;
                Some((labels(schedule)?, seconds))
            });
            encode_samples(&mut encoder, &family, samples)?;
        }
        let suspended = schedules
            .iter()
            .filter_map(|schedule| Some((labels(schedule)?, f64::from(schedule.spec.suspend))));
        encode_samples(&mut encoder, &schedule::SUSPENDED, suspended)?;
        let ended = schedules.iter().filter_map(|schedule| {
            let last = schedule.status.as_ref()?.history.first()?;
            let verdict = last.verdict.map(|verdict| verdict.to_string());
            let [namespace, name] = labels(schedule)?;
            let phase = ("phase", last.phase.to_string());
            Some((
                [namespace, name, phase, ("verdict", verdict.unwrap_or_default())],
                1.0,
            ))
        });
        encode_samples(&mut encoder, &schedule::LAST_RUN, ended)
    }
}

/// A time of a schedule that is exported, if it has one.
type TimeOf = fn(&PerfSchedule) -> Option<Timestamp>;

fn labels(schedule: &PerfSchedule) -> Option<[(&'static str, String); 2]> {
    Some([
        ("run_namespace", schedule.namespace()?),
        ("schedule", schedule.name_any()),
    ])
}

fn last_due(schedule: &PerfSchedule) -> Option<Timestamp> {
    let last = schedule.status.as_ref()?.last_schedule_time.as_ref()?;
    Some(last.0)
}

fn last_success(schedule: &PerfSchedule) -> Option<Timestamp> {
    let last = schedule.status.as_ref()?.last_successful_time.as_ref()?;
    Some(last.0)
}

/// When the first run is due after the last success. It does not depend on which runs were created: a
/// schedule that creates none has no success either.
fn success_due(schedule: &PerfSchedule) -> Option<Timestamp> {
    if schedule.spec.suspend {
        return None;
    }
    let since = last_success(schedule).or_else(|| Some(schedule.creation_timestamp()?.0))?;
    Timetable::new(&schedule.spec).ok()?.after(since)
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::{Value, json};

    /// The page of an operator that has seen this schedule.
    fn page(metadata: &Value, spec: &Value, status: &Value) -> String {
        let (store, mut writer) = reflector::store();
        let mut schedule = json!({
            "metadata": {"name": "nightly", "namespace": "bench"},
            "spec": {"schedule": "@daily", "runTemplate": {"spec": {"workload": {"ping": {}}}}},
            "status": status,
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            let fields = schedule[part].as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
        }
        let schedule = serde_json::from_value(schedule).unwrap();
        writer.apply_watcher_event(&watcher::Event::Apply(schedule));
        let metrics = super::super::Metrics::new();
        metrics.export_schedules(Some(store));
        let page = metrics.encode();
        assert_eq!(perfrun_metrics::undescribed(&page), [""; 0]);
        page
    }

    /// Samples of schedules on a page, without the labels that all of them have.
    fn samples(page: &str) -> Vec<String> {
        let lines = page
            .lines()
            .filter_map(|line| line.strip_prefix("perfrun_schedule_"));
        lines
            .map(|line| line.replace("run_namespace=\"bench\",schedule=\"nightly\"", ""))
            .collect()
    }

    /// A run that has ended, in the history of the schedule.
    fn ended(minute: u32, due: &str, verdict: &Value) -> Value {
        let name = format!("nightly-{minute}");
        json!({"name": name, "scheduleTime": due, "phase": "Succeeded", "verdict": verdict, "message": ""})
    }

    #[test]
    fn a_schedule_is_described_and_exported() {
        let status = json!({
            "lastScheduleTime": "1970-01-04T00:00:00Z",
            "lastSuccessfulTime": "1970-01-02T01:00:00Z",
            "history": [
                ended(4320, "1970-01-04T00:00:00Z", &json!("Fail")),
                ended(1440, "1970-01-02T00:00:00Z", &json!(null)),
            ],
        });
        let created = json!({"creationTimestamp": "1970-01-01T12:00:00Z"});
        assert_eq!(
            samples(&page(&created, &json!({}), &status)),
            [
                "last_due_timestamp_seconds{} 259200.0",
                "last_success_timestamp_seconds{} 90000.0",
                "success_due_timestamp_seconds{} 172800.0",
                "suspended{} 0.0",
                "last_run_info{,phase=\"Succeeded\",verdict=\"Fail\"} 1.0",
            ]
        );
    }

    #[test]
    fn a_success_is_due_when_the_first_run_is_unless_the_schedule_is_suspended() {
        let created = json!({"creationTimestamp": "1970-01-01T12:00:00Z"});
        assert_eq!(
            samples(&page(&created, &json!({}), &json!({}))),
            ["success_due_timestamp_seconds{} 86400.0", "suspended{} 0.0"]
        );
        assert_eq!(
            samples(&page(&created, &json!({"suspend": true}), &json!({}))),
            ["suspended{} 1.0"]
        );
        let unknown_zone = json!({"timeZone": "Mars/Olympus"});
        assert_eq!(
            samples(&page(&created, &unknown_zone, &json!({}))),
            ["suspended{} 0.0"]
        );
    }
}
