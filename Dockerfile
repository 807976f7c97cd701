FROM python:3.13-slim

WORKDIR /srv/foldpoint
COPY pyproject.toml constraints.txt LICENSE ./
COPY foldpoint foldpoint
COPY app app
COPY migrations migrations
RUN pip install --no-cache-dir --constraint constraints.txt . \
    && useradd --system --home-dir /var/lib/foldpoint --create-home foldpoint

USER foldpoint
VOLUME /var/lib/foldpoint
WORKDIR /var/lib/foldpoint
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["foldpoint"]
CMD ["serve", "--host", "0.0.0.0"]
