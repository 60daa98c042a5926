package main

import (
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestLearnProposesHosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.ownGroup()
		curl := "curl -s --max-time 20 "
		line := curl + "http://good.example/; " + curl + "http://also.good.example:8080/; " +
			strings.Join(plainly(curl), " ") + "http://bad.example:8080/; " + curl + "http://private.example/; :"
		for _, c := range []struct {
			name, network string
			flags         []string
			domains       []string
			ports         []string // of rules
			served        int
			say           string
		}{
			{
				"a closed network", ``, nil,
				[]string{"good.example", "private.example"},
				[]string{"also.good.example:8080", "bad.example:8080"},
				0, "let it reach all of them while it learns: --allow-network",
			},
			{
				"some of it granted, and some denied", `"allowedDomains": ["good.example"], "deniedDomains": ["bad.example"]`, nil,
				[]string{"private.example"},
				[]string{"also.good.example:8080"},
				1, "(network.deniedDomains bad.example",
			},
			{
				"what it leads to", `"allowedCIDRs": ["127.0.0.0/8"]`,
				[]string{"--allow-network", "--prove"},
				[]string{"good.example"},
				[]string{"also.good.example:8080", "bad.example:8080"},
				6, "proved: the command went through under the proposal, without:",
			},
		} {
			if c.network != "" && !strings.Contains(c.network, "CIDR") {
				c.network += `, "allowedCIDRs": ["127.0.0.0/8"]`
			}
			file := w.write("../base.jsonc", `{"extends": "default", "network": {`+c.network+`}}`, 0o644)
			w.heard()
			got := w.run(slices.Concat([]string{"learn", "-s", file}, c.flags, []string{"-c", line})...)
			questions, served := w.heard()
			p, err := policy.Parse("stdout", []byte(got.stdout))
			if err != nil {
				t.Fatalf("%s: %v, %+v", c.name, err, got)
			}
			var ports []string
			for _, r := range p.Network.Rules {
				ports = append(ports, r.Host+":"+strings.Join(r.Ports, ","))
			}
			if !slices.Equal(p.Network.AllowedDomains, c.domains) || !slices.Equal(ports, c.ports) || len(served) != c.served || !strings.Contains(got.stderr, c.say) {
				t.Errorf("%s: served %q, got\n%s\n%s", c.name, served, got.stdout, got.stderr)
			}
			if warned := strings.Contains(got.stderr, "for code that you trust"); warned != (c.flags != nil) {
				t.Errorf("%s: warned: %v", c.name, warned)
			}
			if c.flags == nil && slices.Contains(questions, "private.example.") {
				t.Errorf("%s: names that are not granted were looked up: %q", c.name, questions)
			}
		}
	})
}

func TestLearnedPolicyOfAnNpmProjectNamesItsRegistry(t *testing.T) {
	testenv.Requires(t, testenv.Program("node"), testenv.Program("npm"), testenv.NoRace)
	inWorld(t, func(t *testing.T, w *world) {
		w.ownGroup()
		npmProject(w.bench)
		w.inHome("fixtures/one", "1")
		w.inHome(".npmrc", "registry=http://good.example/files/\n")
		pack := tarball(t, file{"package/package.json", `{"name": "greeting", "version": "1.2.3"}`}, file{"package/index.js", "module.exports = 42\n"})
		w.inHome("files/greeting-1.2.3.tgz", string(pack))
		sum := sha512.Sum512(pack)
		w.write("package.json", `{"name": "app", "version": "1.0.0", "private": true, "scripts": {"test": "node test.js"}, "dependencies": {"dep": "file:dep", "greeting": "1.2.3"}}`, 0o644)
		lock := filepath.Join(w.dir, "package-lock.json")
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		w.write("package-lock.json", strings.NewReplacer(
			`"dep": "file:dep"`, `"dep": "file:dep", "greeting": "1.2.3"`,
			`"link": true}`, `"link": true},
  "node_modules/greeting": {"version": "1.2.3", "resolved": "http://good.example/files/greeting-1.2.3.tgz", "integrity": "sha512-`+base64.StdEncoding.EncodeToString(sum[:])+`"}`,
		).Replace(string(text)), 0o644)
		base := w.write("../base.jsonc", `{"extends": "default", "network": {"allowedCIDRs": ["127.0.0.0/8"]}}`, 0o644)
		const line = "npm ci --no-audit && npm test"
		if got := w.run("learn", "-s", base, "--allow-read", "~/.npmrc", "-c", line); got.status == 0 || !strings.Contains(got.stdout, "\"@npm\", // n") {
			t.Errorf("without the registry: %+v", got)
		}
		got := w.run("learn", "-s", base, "--allow-read", "~/.npmrc", "--allow-network", "--prove", "-c", line)
		p, err := policy.Parse("stdout", []byte(got.stdout))
		if err != nil || got.status != 0 || !strings.Contains(got.stderr, "bailey: proved: ") {
			t.Errorf("error %v, %+v", err, got)
		}
		if lines := strings.Count(got.stdout, "\n"); lines >= 30 || !slices.Equal(p.Network.AllowedDomains, []string{"@npm"}) || !slices.Equal(p.Filesystem.AllowRead, []string{"~/.npmrc", "~/fixtures/one"}) {
			t.Errorf("%d lines:\n%s", lines, got.stdout)
		}
		if _, err := os.Stat(filepath.Join(w.dir, "node_modules/greeting/index.js")); err != nil {
			t.Error(err)
		}
	})
}
