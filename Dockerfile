# The demonstration in a container: docker build -t countveil . && docker run --rm countveil
FROM python:3.11-slim
WORKDIR /opt/countveil
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt .
RUN useradd --create-home curator
USER curator
WORKDIR /home/curator
ENTRYPOINT ["countveil"]
CMD ["demo"]
