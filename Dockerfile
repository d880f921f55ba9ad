# syntax=docker/dockerfile:1
# Two stages: the second has no compiler, no package lists and no root.

FROM rust:1.95-slim-bookworm AS build
# librdkafka is built from source; OpenSSL and zlib are linked from Debian.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make pkg-config libssl-dev libzstd-dev zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --package walrelay --features allocator \
    && install -D target/release/walrelay /out/walrelay

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libssl3 libzstd1 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin walrelay \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/walrelay
COPY --from=build /out/walrelay /usr/local/bin/walrelay
USER 10001:10001
# Where the state file is made. On a volume it also outlives the container.
ENV STATE_DIRECTORY=/var/lib/walrelay
# In a container, loopback is seen by nobody.
ENV WALRELAY_ADMIN__LISTEN=0.0.0.0:9464
EXPOSE 9464
# Liveness, not readiness: a broker that is down is no reason to restart the relay.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["walrelay", "status", "--live"]
ENTRYPOINT ["walrelay"]
CMD ["run"]
