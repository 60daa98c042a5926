PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
BIN     ?= bin

# -s -w: every page of the binary that need not be mapped is start-up time
# saved, and each command pays the start-up. No PIE for the same reason.
GOBUILD = CGO_ENABLED=0 go build -trimpath
LDFLAGS = -s -w
# Where the command begins; see internal/sandbox/native/entry_linux.go.
ENTRY   = $(if $(filter linux,$(shell go env GOOS)),-E github.com/bailey-sandbox/bailey/internal/sandbox/native.entry)

.PHONY: build install test long bench generate format clean

# The linker writes through a mapping, which leaves a file in the page cache in
# single pages. A copy is there in large ones, which are faster to map: a tenth of
# a launch. So the command is replaced by a copy of itself.
build: ## build every command into bin/
	@mkdir -p '$(BIN)'
	$(GOBUILD) -ldflags='$(LDFLAGS) $(ENTRY)' -o '$(BIN)/bailey' ./cmd/bailey
	$(GOBUILD) -ldflags='$(LDFLAGS)' -o '$(BIN)/' ./cmd/baileyd ./cmd/bailey-gate ./cmd/bailey-guard ./cmd/bailey-server
	@cp '$(BIN)/bailey' '$(BIN)/bailey.copy' && mv '$(BIN)/bailey.copy' '$(BIN)/bailey'

install: build ## install the commands below PREFIX
	install -d '$(DESTDIR)$(BINDIR)'
	install -m 755 '$(BIN)/bailey' '$(BIN)/baileyd' '$(BIN)/bailey-gate' '$(BIN)/bailey-guard' '$(BIN)/bailey-server' '$(DESTDIR)$(BINDIR)/'

test: ## everything continuous integration runs
	./scripts/test

long: ## the same, with the campaigns that need hours
	./scripts/test --long

bench: build ## the command against unsandboxed and bubblewrap
	./scripts/benchmark.sh

generate: ## renew the schema, the manual page and the completions
	go generate ./...

format: ## rewrite sources the way the test run wants them
	go run mvdan.cc/gofumpt@v0.12.0 -w .

clean:
	rm -rf bin benchmarks .cache
