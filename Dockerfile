# The static binary, the workspaces of langs/, and the toolchains of LANGUAGES,
# from the same recipe as `make toolchains` (docs/toolchains.md).
#
#   docker build -t cofferdam:all .
#   docker build -t cofferdam:python --build-arg LANGUAGES=python .
#   docker run --rm -p 8080:8080 --privileged cofferdam:python
#
# --privileged is the plain way to let a container make boxes of its own;
# `docker run --rm --privileged cofferdam:python doctor` tells what holds there,
# and what less would do.
#
# A one-language image needs no more than the binary beside its own Makefile:
#   COPY --from=cofferdam:python /usr/local/bin/cofferdam /usr/local/bin/

ARG BUILD_IMAGE=rust:1.95-slim-trixie
ARG BASE_IMAGE=debian:trixie-slim
# `compiled` here, or `given` as target/image/cofferdam.
ARG BINARY=compiled

FROM ${BUILD_IMAGE} AS compiled
WORKDIR /src
COPY . .
RUN cargo build --locked --release \
    && install -D target/*/release/cofferdam target/image/cofferdam

FROM scratch AS given
COPY target/image/cofferdam /src/target/image/cofferdam

FROM ${BINARY} AS binary

# What comes from npm and PyPI, without their tools.
FROM ${BASE_IMAGE} AS fetched
ARG LANGUAGES=all
COPY langs/toolchains /recipe
RUN mkdir -p /fetched/usr/local/lib \
    && slugs="$(/recipe/slugs $LANGUAGES)" && /recipe/fetch /fetched $slugs

FROM ${BASE_IMAGE}
COPY langs/toolchains /opt/cofferdam/langs/toolchains
WORKDIR /opt/cofferdam/langs
RUN toolchains/backports \
    && apt-get -q update \
    && sed '/^#/d' toolchains/base.packages | xargs apt-get -q -y install --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
ARG LANGUAGES=all
COPY --from=fetched /fetched /
RUN apt-get -q update \
    && for slug in $(toolchains/slugs $LANGUAGES); do toolchains/install $slug || exit 1; done \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY langs /opt/cofferdam/langs
RUN for slug in $(toolchains/slugs $LANGUAGES); do toolchains/warm $slug . || exit 1; done
COPY --from=binary /src/target/image/cofferdam /usr/local/bin/cofferdam
ENV LANGS_DIR=/opt/cofferdam/langs PORT=8080
WORKDIR /
EXPOSE 8080
ENTRYPOINT ["cofferdam"]
CMD ["serve"]
