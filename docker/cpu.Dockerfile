# ragen_verl on CPUs, as `make train` installs it.    docker build -f docker/cpu.Dockerfile -t ragen-verl:cpu .
#                                                     docker run --rm -it --shm-size=4g ragen-verl:cpu train nano/frozen_lake
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends make gcc g++ git procps && rm -rf /var/lib/apt/lists/*
WORKDIR /ragen_verl
COPY . .
RUN make install
ENV PATH=/ragen_verl/.venv/bin:$PATH
ENTRYPOINT ["ragen-verl"]
CMD ["doctor", "--quick"]
