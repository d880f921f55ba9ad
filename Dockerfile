# syntax=docker/dockerfile:1
# The image, for those who build with Docker: no shell, no package manager, no root. `make dist` writes the same without
# Docker, and takes what follows the last FROM from here.
#
# Not run by us: this file as a whole, for there is no Docker where walrelay is tested. Tested there are
# packaging/image/root, which makes the files, and an image with them and with this configuration.

FROM rust:1.95-slim-trixie AS build
RUN [ "$(dpkg --print-architecture)" = amd64 ] || { echo "packaging/image/root knows amd64 only: docker build --platform linux/amd64" >&2; exit 1; }
# librdkafka, OpenSSL and zlib are built from source and linked in.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make perl pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
# For `walrelay --version`: docker build --build-arg WALRELAY_COMMIT=$(git rev-parse --short=12 HEAD) .
ARG WALRELAY_COMMIT=
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --profile dist --locked --package walrelay --features portable,allocator \
    && install -D target/dist/walrelay /out/walrelay \
    && install -D -m 644 -t /out/licences LICENSE-APACHE LICENSE-MIT

FROM debian:trixie-slim AS root
COPY packaging/image/root /usr/local/bin/image-root
COPY --from=build /out /out
RUN image-root /out/walrelay /image /out/licences

FROM scratch
LABEL org.opencontainers.image.title="walrelay" \
      org.opencontainers.image.description="Carries Postgres outbox events to Kafka or RabbitMQ" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.version="0.1.0"
COPY --from=root /image /
USER 10001:10001
ENV PATH=/usr/local/bin
# Where the state file is made. On a volume it also outlives the container.
ENV STATE_DIRECTORY=/var/lib/walrelay
# In a container, loopback is seen by nobody.
ENV WALRELAY_ADMIN__LISTEN=0.0.0.0:9464
EXPOSE 9464
# Liveness, not readiness: a broker that is down is no reason to restart the relay.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["/usr/local/bin/walrelay", "status", "--live"]
ENTRYPOINT ["/usr/local/bin/walrelay"]
CMD ["run"]
