# One image: the static binary, the workspaces of langs/, and the toolchains that
# Debian has for them.
#
#   docker build -t cofferdam .
#   docker run --rm -p 4040:4040 --privileged cofferdam
#
# --privileged is the plain way to let a container make boxes of its own;
# `docker run --rm --privileged cofferdam doctor` tells what holds there, and what
# less would do.
#
# A one-language image needs no more than the binary beside its own Makefile:
#   COPY --from=cofferdam /usr/local/bin/cofferdam /usr/local/bin/

ARG BUILD_IMAGE=rust:1.95-slim-trixie
ARG BASE_IMAGE=debian:trixie-slim

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release \
    && cp target/*/release/cofferdam /usr/local/bin/cofferdam

FROM ${BASE_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        default-jdk-headless g++ libgoogle-gson-java make node-lodash nodejs php-cli python3 ruby \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/cofferdam /usr/local/bin/cofferdam
COPY langs /opt/cofferdam/langs
ENV LANGS_DIR=/opt/cofferdam/langs
EXPOSE 4040
ENTRYPOINT ["cofferdam"]
CMD ["serve"]
