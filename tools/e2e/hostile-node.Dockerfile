# The hostile node of the soak and the libraries that it loads, gathered by `cargo xtask soak`.
FROM scratch
COPY . /
USER 65532:65532
ENTRYPOINT ["/perfrun-hostile-node"]
