# iperf3 and the libraries that it loads, gathered by `cargo xtask bench cluster`.
FROM scratch
COPY . /
USER 65532:65532
ENTRYPOINT ["/usr/bin/iperf3"]
