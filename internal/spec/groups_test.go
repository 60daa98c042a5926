package spec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Tools as they are installed, with defaults of their own.
var (
	npmInstalled = []string{
		"/usr/bin/node", "/usr/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js", "/usr/lib/node_modules/npm/bin/npm-cli.js",
		"/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js=" + npmDefinitionsText,
	}
	pipInstalled = []string{
		"/usr/bin/python3 -> python3.11", "/usr/bin/python3.11",
		"/usr/lib/python3/dist-packages/pip/_internal/models/index.py=" + pipIndexText,
	}
	goInstalled = []string{
		"/usr/bin/go -> ../lib/go-1.26/bin/go", "/usr/lib/go-1.26/bin/go",
		"/usr/lib/go-1.26/go.env=# defaults\nGOPROXY=https://proxy.example,direct\nGOSUMDB=sum.example\n",
	}
)

const (
	npmDefinitionsText = `
  'rebuild-bundle': new Definition('rebuild-bundle', {
    default: true,
  }),
  registry: new Definition('registry', {
    default: 'https://registry.example/',
    type: url,
    description: ` + "`\n      The base URL of the npm registry.\n    `" + `,
  }),
  'replace-registry-host': new Definition('replace-registry-host', {
    default: 'https://other.example',
`
	pipIndexText = `
class PackageIndex:
    def __init__(self, url: str, file_storage_domain: str):
        self.url = url

Main = PackageIndex("https://index.example/", file_storage_domain="files.example")
Trial = PackageIndex(
    "https://trial.example/", file_storage_domain="trial-files.example"
)
`
)

// machine is newFake, from lines and lists of lines.
func machine(parts ...any) *fakeFacts {
	f := newFake("/home/u/p/")
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			f.add(part)
		case []string:
			for _, line := range part {
				f.add(line)
			}
		}
	}
	return f
}

func env(v ...string) []string { return append([]string{"PATH=/usr/local/bin:/usr/bin"}, v...) }

// found lists a group's hosts as "host:port from", or the error.
func found(g *groups, group string) []string {
	endpoints, err := g.Endpoints(group)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	var list []string
	for _, e := range endpoints {
		host := e.Host
		if e.Port != 0 {
			host += ":" + strconv.Itoa(int(e.Port))
		}
		list = append(list, host+" "+e.From)
	}
	return list
}

type groupTest struct {
	name    string
	environ []string
	machine *fakeFacts
	want    []string
}

func testGroup(t *testing.T, group string, tests []groupTest) {
	t.Helper()
	for _, test := range tests {
		g := newGroups(test.machine, "/home/u", "/home/u/p", test.environ)
		if got := found(g, group); !slices.Equal(got, test.want) {
			t.Errorf("%s, %s:\ngot  %q\nwant %q", group, test.name, got, test.want)
		}
	}
}

func TestNpmGroup(t *testing.T) {
	const definitions = "default registry of /usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js"
	at := func(dir string) []string {
		return []string{dir + "/bin/npm-cli.js", dir + "/lib/config/defaults.js=\n    registry: 'https://six.example/',\n"}
	}
	testGroup(t, "@npm", []groupTest{
		{"the default of the installation", env(), machine(npmInstalled), []string{"registry.example " + definitions}},
		{
			"the user's file", env(), machine(npmInstalled, "/home/u/.npmrc=; mirror\nregistry = \"https://u:p@mirror.example:8443/npm/\"\n"),
			[]string{"mirror.example:8443 registry of /home/u/.npmrc"},
		},
		{
			"the project before the user", env(), machine(npmInstalled, "/home/u/.npmrc=registry=https://user.example", "/home/u/p/.npmrc=registry=https://project.example"),
			[]string{"project.example registry of /home/u/p/.npmrc"},
		},
		{
			"a variable before all", env("NPM_CONFIG_REGISTRY=http://[2001:db8::1]:4873/"), machine(npmInstalled, "/home/u/p/.npmrc=registry=https://project.example"),
			[]string{"2001:db8::1:4873 NPM_CONFIG_REGISTRY"},
		},
		{"an empty variable is none", env("npm_config_registry="), machine(npmInstalled), []string{"registry.example " + definitions}},
		{
			"scopes besides the registry", env(), machine(npmInstalled, "/home/u/.npmrc=@a:registry=https://a.example/\n//a.example/:_authToken=x\n@b:registry=https://b.example\n",
				"/home/u/p/.npmrc=@a:registry=https://c.example/\n"),
			[]string{"c.example @a:registry of /home/u/p/.npmrc", "b.example @b:registry of /home/u/.npmrc", "registry.example " + definitions},
		},
		{"for all users", env(), machine(npmInstalled, "/usr/etc/npmrc=registry=https://all.example"), []string{"all.example registry of /usr/etc/npmrc"}},
		{"another prefix", env(), machine(npmInstalled, "/home/u/.npmrc=prefix=${HOME}/g", "/home/u/g/etc/npmrc=registry=https://all.example"), []string{"registry.example " + definitions}},
		{
			"a prefix in the home", env(), machine(npmInstalled, "/home/u/.npmrc=prefix=~/g", "/home/u/g/etc/npmrc=registry=https://all.example"),
			[]string{"all.example registry of /home/u/g/etc/npmrc"},
		},
		{
			"what an installation brings", env(), machine(npmInstalled, "/usr/lib/node_modules/npm/npmrc=globalconfig=/etc/npmrc", "/etc/npmrc=registry=https://all.example"),
			[]string{"all.example registry of /etc/npmrc"},
		},
		{
			"another file of the user's", env("npm_config_userconfig=/srv/rc"), machine(npmInstalled, "/home/u/.npmrc=registry=https://user.example", "/srv/rc=registry=https://srv.example"),
			[]string{"srv.example registry of /srv/rc"},
		},
		{
			"proxies are not hosts", env("npm_config_proxy=http://proxy.example:3128"), machine(npmInstalled, "/home/u/.npmrc=proxy=http://p.example\nhttps-proxy=http://q.example\n"),
			[]string{"registry.example " + definitions},
		},
		{
			"a version manager's directory",
			[]string{"PATH=/home/u/.nvm/v22/bin"},
			machine("/home/u/.nvm/v22/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js", at("/home/u/.nvm/v22/lib/node_modules/npm")),
			[]string{"six.example default registry of /home/u/.nvm/v22/lib/node_modules/npm/lib/config/defaults.js"},
		},
		{
			"Volta",
			[]string{"PATH=/home/u/.volta/bin"},
			machine("/home/u/.volta/bin/npm -> volta-shim", "/home/u/.volta/bin/volta-shim", at("/home/u/.volta/tools/image/node/9.1.0/lib/node_modules/npm"), at("/home/u/.volta/tools/image/node/22.1.0/lib/node_modules/npm")),
			[]string{"six.example default registry of /home/u/.volta/tools/image/node/22.1.0/lib/node_modules/npm/lib/config/defaults.js"},
		},
		{
			"shims",
			[]string{"PATH=/home/u/.asdf/shims"},
			machine("/home/u/.asdf/shims/npm", at("/home/u/.asdf/installs/nodejs/22.1.0/lib/node_modules/npm")),
			[]string{"six.example default registry of /home/u/.asdf/installs/nodejs/22.1.0/lib/node_modules/npm/lib/config/defaults.js"},
		},
		{
			"Debian's layout", env(), machine("/usr/bin/npm -> ../share/nodejs/npm/bin/npm-cli.js", "/usr/share/nodejs/npm/bin/npm-cli.js",
				"/usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js=define('registry', {\n  default: 'https://deb.example/',\n"),
			[]string{"deb.example default registry of /usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js"},
		},
		{
			"Yarn and pnpm", env(), machine(npmInstalled, "/home/u/p/.yarnrc=# x\nregistry \"https://one.example\"\n\"@s:registry\" \"https://s.example\"\n",
				"/home/u/.yarnrc.yml=npmRegistryServer: 'https://two.example' # x\nnpmScopes:\n  s:\n    npmRegistryServer: https://three.example\n", "/home/u/.config/pnpm/rc=registry=https://four.example"),
			[]string{
				"four.example registry of /home/u/.config/pnpm/rc", "one.example registry of /home/u/p/.yarnrc", "s.example @s:registry of /home/u/p/.yarnrc",
				"two.example npmRegistryServer of /home/u/.yarnrc.yml", "three.example npmRegistryServer of /home/u/.yarnrc.yml", "registry.example " + definitions,
			},
		},
		{"a variable of Yarn's", env("YARN_NPM_REGISTRY_SERVER=https://y.example"), machine(npmInstalled), []string{"y.example YARN_NPM_REGISTRY_SERVER", "registry.example " + definitions}},
		{
			"a host twice", env("npm_config_registry=https://a.example"), machine("/home/u/.npmrc=@s:registry=https://a.example:443/s\n@t:registry=https://A.example:8443/t\n"),
			[]string{"a.example npm_config_registry", "a.example:8443 @t:registry of /home/u/.npmrc"},
		},
		{"a directory", env(), machine(npmInstalled, "/home/u/.npmrc=registry=file:///srv/npm"), nil},
		{
			"not installed", env(), machine(),
			[]string{"error: no registry is set in npm_config_registry or ~/.npmrc, and npm, which has a default, is not in PATH; write the host by name instead of @npm"},
		},
		{
			"installed in an unknown way", env(), machine("/usr/bin/npm", "/usr/lib/node_modules/npm/bin/npm-cli.js"),
			[]string{"error: no registry is set in npm_config_registry or ~/.npmrc, and no default was found in /usr/lib/node_modules/npm; write the host by name instead of @npm"},
		},
	})
}

func TestConfigurationOfTheDirectoryBelowTheProjectCounts(t *testing.T) {
	f := machine(npmInstalled, "/home/u/p/.npmrc=registry=https://top.example", "/home/u/p/app/.npmrc=registry=https://app.example", "/home/u/p/app/src/")
	f.host.Dir = "/home/u/p/app/src"
	got := found(newGroups(f, "/home/u", "/home/u/p", env()), "@npm")
	if want := []string{"app.example registry of /home/u/p/app/.npmrc"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestVariablesAreReplacedInFilesOfNpm(t *testing.T) {
	f := &finding{groups: newGroups(machine(), "", "", []string{"HOST=h.example", "EMPTY=", "NPM_TOKEN=secret", "A_b1=x"})}
	for in, want := range map[string]string{
		"https://${HOST}/":     "https://h.example/",
		"https://$HOST/x":      "https://h.example/x",
		"$A_b1.$HOST":          "x.h.example",
		"${NONE}":              "${NONE}",
		"$NONE.example":        "$NONE.example",
		"${NONE?}x":            "x",
		"${NONE-d.example}":    "d.example",
		"${NONE:-d.example}":   "d.example",
		"${EMPTY:-d.example}":  "d.example",
		"${EMPTY-d.example}":   "",
		"${HOST:-d.example}":   "h.example",
		"${NPM_TOKEN}.example": "${NPM_TOKEN}.example",
		"$NPM_TOKEN":           "$NPM_TOKEN",
		"$":                    "$",
		"${":                   "${",
		"${}":                  "${}",
		"$$HOST":               "$h.example",
	} {
		if got := f.expand(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestPipGroup(t *testing.T) {
	const source = "/usr/lib/python3/dist-packages/pip/_internal/models/index.py"
	defaults := []string{"index.example default index of " + source, "files.example files of the default index of " + source}
	testGroup(t, "@pip", []groupTest{
		{"the default, with the host of its files", env(), machine(pipInstalled), defaults},
		{
			"a file", env(), machine(pipInstalled, "/home/u/.config/pip/pip.conf=[global]\nindex_url = https://u:p@mirror.example/simple\nextra-index-url =\n    https://a.example/simple\n    # x\n    http://b.example:8080/simple\nproxy = http://proxy.example:3128\n"),
			[]string{"mirror.example index-url of /home/u/.config/pip/pip.conf", "a.example extra-index-url of /home/u/.config/pip/pip.conf", "b.example:8080 extra-index-url of /home/u/.config/pip/pip.conf"},
		},
		{
			"the default by name", env("PIP_INDEX_URL=https://index.example/simple"), machine(pipInstalled),
			[]string{"index.example PIP_INDEX_URL", "files.example files of the default index of " + source},
		},
		{
			"the old place of the file, and a command's section", env(), machine("/home/u/.pip/pip.conf=[global]\nindex-url: https://g.example\n[install]\nindex-url = https://i.example"),
			[]string{"i.example index-url of /home/u/.pip/pip.conf", "g.example index-url of /home/u/.pip/pip.conf"},
		},
		{
			"a variable before files", env("PIP_INDEX_URL=https://v.example"), machine("/etc/pip.conf=[global]\nindex-url=https://etc.example\nextra-index-url=https://x.example\n[install]\nindex-url=https://i.example"),
			[]string{"v.example PIP_INDEX_URL", "x.example extra-index-url of /etc/pip.conf"},
		},
		{
			"the virtual environment before the user", env("VIRTUAL_ENV=/srv/v"), machine("/home/u/.config/pip/pip.conf=[global]\nindex-url=https://user.example", "/srv/v/pip.conf=[global]\nindex-url=https://v.example"),
			[]string{"v.example index-url of /srv/v/pip.conf"},
		},
		{
			"a file that is given", env("PIP_CONFIG_FILE=/srv/pip.ini"), machine("/etc/pip.conf=[global]\nindex-url=https://etc.example", "/srv/pip.ini=[global]\nindex-url=https://srv.example"),
			[]string{"srv.example index-url of /srv/pip.ini"},
		},
		{"no files", env("PIP_CONFIG_FILE=/dev/null"), machine(pipInstalled, "/etc/pip.conf=[global]\nindex-url=https://etc.example"), defaults},
		{"no index", env("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/srv/wheels https://links.example/x"), machine(pipInstalled), []string{"links.example PIP_FIND_LINKS"}},
		{"no index and nothing else", env("PIP_NO_INDEX=true"), machine(pipInstalled), nil},
		{
			"uv", env("UV_DEFAULT_INDEX=main=https://d.example/simple", "UV_INDEX=https://e.example https://f.example?a=b"), machine(pipInstalled),
			append([]string{"d.example UV_DEFAULT_INDEX", "e.example UV_INDEX", "f.example UV_INDEX"}, defaults...),
		},
		{
			"uv's files", env(), machine("/home/u/p/pyproject.toml=[project]\nindex-url = 'https://not.example'\n[tool.uv]\nextra-index-url = [\n 'https://a.example', # x\n \"https://b.example\",\n]\n[[tool.uv.index]]\nname = \"c\"\nurl = \"https://c.example/simple\"\n",
				"/home/u/.config/uv/uv.toml=index = [{ name = 'd', url = 'https://d.example' }]\nfind-links = ['wheels', 'https://l.example']\n[pip]\nindex-url = 'https://e.example'\n"),
			[]string{
				"a.example extra-index-url of /home/u/p/pyproject.toml", "b.example extra-index-url of /home/u/p/pyproject.toml", "c.example index.url of /home/u/p/pyproject.toml",
				"d.example index.url of /home/u/.config/uv/uv.toml", "l.example find-links of /home/u/.config/uv/uv.toml", "e.example pip.index-url of /home/u/.config/uv/uv.toml",
			},
		},
		{"a virtual environment without pip", []string{"PATH=/srv/v/bin:/usr/bin"}, machine(pipInstalled, "/srv/v/bin/python3 -> /usr/bin/python3"), defaults},
		{
			"shims",
			[]string{"PATH=/home/u/.pyenv/shims"},
			machine("/home/u/.pyenv/shims/python3", "/home/u/.pyenv/versions/3.9.1/bin/python3 -> python3.9", "/home/u/.pyenv/versions/3.9.1/bin/python3.9",
				"/home/u/.pyenv/versions/3.12.1/bin/python3 -> python3.12", "/home/u/.pyenv/versions/3.12.1/bin/python3.12",
				"/home/u/.pyenv/versions/3.12.1/lib/python3.12/site-packages/pip/_internal/models/index.py=X = PackageIndex(\n    'https://new.example/', file_storage_domain='f.example'\n)",
				"/home/u/.pyenv/versions/3.9.1/lib/python3.9/site-packages/pip/_internal/models/index.py="+pipIndexText),
			[]string{
				"new.example default index of /home/u/.pyenv/versions/3.12.1/lib/python3.12/site-packages/pip/_internal/models/index.py",
				"f.example files of the default index of /home/u/.pyenv/versions/3.12.1/lib/python3.12/site-packages/pip/_internal/models/index.py",
			},
		},
		{
			"not installed", env(), machine("/usr/bin/python3"),
			[]string{"error: no index is set in PIP_INDEX_URL or pip.conf, and pip, which has a default, was not found beside a python3 in PATH; write the host by name instead of @pip"},
		},
		{
			"not a URL", env("PIP_INDEX_URL=mirror.example"), machine(pipInstalled),
			[]string{"error: PIP_INDEX_URL names no host that can be granted; write the host by name instead of @pip"},
		},
	})
}

func TestGoGroup(t *testing.T) {
	const root = "/usr/lib/go-1.26/go.env"
	testGroup(t, "@go", []groupTest{
		{"the defaults of the installation", env(), machine(goInstalled), []string{"proxy.example GOPROXY of " + root, "sum.example GOSUMDB of " + root}},
		{
			"variables", env("GOPROXY=https://u:p@a.example:8081/go|http://b.example,direct", "GOSUMDB=sum.corp.example+ab+cd https://c.example/sumdb"), machine(goInstalled),
			[]string{"a.example:8081 GOPROXY", "b.example GOPROXY", "c.example GOSUMDB"},
		},
		{"what go env -w wrote", env(), machine(goInstalled, "/home/u/.config/go/env=GOPROXY=https://w.example\nGOSUMDB=off\n"), []string{"w.example GOPROXY of /home/u/.config/go/env"}},
		{
			"another file", env("GOENV=/srv/goenv"), machine(goInstalled, "/home/u/.config/go/env=GOPROXY=https://w.example", "/srv/goenv=GOPROXY=https://s.example\nGOSUMDB=off"),
			[]string{"s.example GOPROXY of /srv/goenv"},
		},
		{"no file", env("GOENV=off", "GOSUMDB=off"), machine(goInstalled, "/home/u/.config/go/env=GOPROXY=https://w.example"), []string{"proxy.example GOPROXY of " + root}},
		{"a root that is given", env("GOROOT=/srv/go"), machine(goInstalled, "/srv/go/go.env=GOPROXY=https://srv.example"), []string{"srv.example GOPROXY of /srv/go/go.env"}},
		{
			"asdf",
			[]string{"PATH=/home/u/.asdf/shims"},
			machine("/home/u/.asdf/shims/go", "/home/u/.asdf/installs/golang/1.26.0/go/go.env=GOPROXY=https://a.example"),
			[]string{"a.example GOPROXY of /home/u/.asdf/installs/golang/1.26.0/go/go.env"},
		},
		{
			"a version without go.env", env(), machine("/usr/bin/go -> ../lib/go-1.19/bin/go", "/usr/lib/go-1.19/bin/go",
				"/usr/lib/go-1.19/src/cmd/go/internal/cfg/cfg.go=\tGOPROXY    = envOr(\"GOPROXY\", \"https://old.example,direct\")\n\tGOSUMDB    = envOr(\"GOSUMDB\", \"oldsum.example\")\n"),
			[]string{"old.example GOPROXY of /usr/lib/go-1.19/src/cmd/go/internal/cfg/cfg.go", "oldsum.example GOSUMDB of /usr/lib/go-1.19/src/cmd/go/internal/cfg/cfg.go"},
		},
		{
			"private modules", env("GOPROXY=direct", "GOSUMDB=off", "GOPRIVATE=git.corp.example/team,*.dev.example,*,*.com,a*.example,git?.example"), machine(),
			[]string{"git.corp.example GOPRIVATE", "*.dev.example GOPRIVATE"},
		},
		{"GONOPROXY before GOPRIVATE", env("GOPROXY=direct", "GOSUMDB=off", "GOPRIVATE=a.example", "GONOPROXY=none"), machine(), nil},
		{"off", env("GOPROXY=off"), machine(goInstalled), nil},
		{"a directory", env("GOPROXY=file:///srv/modules", "GOSUMDB=off"), machine(goInstalled), nil},
		{"not installed", env(), machine(), []string{"error: GOPROXY is not set, and no go in PATH has a go.env with its default; write the host by name instead of @go"}},
	})
}

func TestCargoGroup(t *testing.T) {
	const used = "/home/u/.cargo/registry/index/"
	index := []string{used + "index.example-0123abcd/config.json={\"dl\": \"https://dl.example/crates\", \"api\": \"https://api.example\"}", used + "git.example-4567/.git/HEAD"}
	defaults := []string{"index.example /home/u/.cargo/registry/index/index.example-0123abcd", "dl.example dl of /home/u/.cargo/registry/index/index.example-0123abcd/config.json"}
	testGroup(t, "@cargo", []groupTest{
		{"what cargo has used", env(), machine(index), defaults},
		{"what it has used as a git repository", env(), machine(index[1]), []string{"git.example /home/u/.cargo/registry/index/git.example-4567"}},
		{"another home", env("CARGO_HOME=/srv/cargo"), machine(index, "/srv/cargo/registry/index/s.example-1/config.json={}"), []string{"s.example /srv/cargo/registry/index/s.example-1"}},
		{
			"registries besides", env("CARGO_REGISTRIES_MY_REG_INDEX=sparse+https://v.example/index/"), machine(index,
				"/home/u/p/.cargo/config.toml=[registries]\na = { index = \"sparse+https://u:p@a.example:8443/i/\" }\n[registries.b]\nindex = 'https://b.example/i.git'\n", "/home/.cargo/config=registries.\"c\".index = \"sparse+https://c.example\""),
			append([]string{
				"v.example CARGO_REGISTRIES_MY_REG_INDEX", "a.example:8443 registries.a.index of /home/u/p/.cargo/config.toml", "b.example registries.b.index of /home/u/p/.cargo/config.toml",
				"c.example registries.c.index of /home/.cargo/config",
			}, defaults...),
		},
		{
			"another source in place of the default", env(), machine(index, "/home/u/.cargo/registry/index/m.example-9/config.json={\"dl\":\"https://mdl.example/{crate}\"}",
				"/home/u/.cargo/config.toml=[source.crates-io]\nreplace-with = \"one\"\n[source.one]\nreplace-with = 'two'\n[source.two]\nregistry = \"sparse+https://m.example/index/\"\n"),
			[]string{"m.example source.two.registry of /home/u/.cargo/config.toml", "mdl.example dl of /home/u/.cargo/registry/index/m.example-9/config.json"},
		},
		{
			"a registry in place of the default", env(), machine("/home/u/.cargo/config.toml=source.crates-io.replace-with = 'r'\nregistries.r.index = 'sparse+https://r.example'\n"),
			[]string{"r.example registries.r.index of /home/u/.cargo/config.toml"},
		},
		{
			"the project before the user", env(), machine("/home/u/p/.cargo/config.toml=[source]\ncrates-io = {replace-with=\"p\"}\np = {registry=\"https://p.example\"}\nq={registry=\"https://q.example\"}", "/home/u/.cargo/config.toml=[source.crates-io]\nreplace-with='q'"),
			[]string{"p.example source.p.registry of /home/u/p/.cargo/config.toml"},
		},
		{"packages that lie in a directory", env(), machine(index, "/home/u/p/.cargo/config.toml=[source.crates-io]\nreplace-with='v'\n[source.v]\ndirectory='vendor'"), nil},
		{
			"a circle", env(), machine("/home/u/.cargo/config.toml=[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='crates-io'"),
			[]string{"error: cargo's default registry is not replaced by another, and /home/u/.cargo/registry/index, which names it after a \"cargo fetch\" outside of the sandbox, names none; write the host by name instead of @cargo"},
		},
		{
			"never used", env(), machine(),
			[]string{"error: cargo's default registry is not replaced by another, and /home/u/.cargo/registry/index, which names it after a \"cargo fetch\" outside of the sandbox, names none; write the host by name instead of @cargo"},
		},
	})
}

func TestAptGroup(t *testing.T) {
	testGroup(t, "@apt", []groupTest{
		{"both formats", env(), machine(
			"/etc/apt/sources.list=# deb http://no.example x\ndeb [arch=amd64 signed-by=/k] http://deb.example/debian stable main # x\ndeb-src https://u:p@src.example:8443/debian stable main\ndeb cdrom:[Debian]/ stable main\nrpm http://no.example x\n",
			"/etc/apt/sources.list.d/a.list=deb http://a.example/ ./\ndeb [\n", "/etc/apt/sources.list.d/b.list.save=deb http://no.example x",
			"/etc/apt/sources.list.d/c.sources=Types: deb\n# http://no.example\nURIs: http://c.example/debian\n https://d.example/debian\nSuites: stable\n\nTypes: deb\nURIs: http://no.example\nEnabled: no\n\nEnabled: yes\nURIs: http://e.example\n",
		), []string{
			"deb.example mirror of /etc/apt/sources.list", "src.example:8443 mirror of /etc/apt/sources.list", "a.example mirror of /etc/apt/sources.list.d/a.list",
			"c.example mirror of /etc/apt/sources.list.d/c.sources", "d.example mirror of /etc/apt/sources.list.d/c.sources", "e.example mirror of /etc/apt/sources.list.d/c.sources",
		}},
		{
			"lists of mirrors", env(), machine("/etc/apt/sources.list=deb mirror+file:///etc/apt/mirrors.txt stable main\ndeb mirror+https://list.example/m stable main\ndeb mirror://old.example/m x\n",
				"/etc/apt/mirrors.txt=# x\nhttps://one.example/debian\tpriority:1\nhttp://two.example/debian\nfile:/srv/debian\n"),
			[]string{"one.example mirror of /etc/apt/mirrors.txt", "two.example mirror of /etc/apt/mirrors.txt", "list.example mirror of /etc/apt/sources.list", "old.example mirror of /etc/apt/sources.list"},
		},
		{
			"proxies", env(), machine("/etc/apt/sources.list=deb http://a.example x y",
				"/etc/apt/apt.conf.d/01proxy=// x\n/* Acquire::http::Proxy \"http://no.example\"; */\nAcquire::HTTP::Proxy \"http://early.example:3142\";\nAcquire::http::Proxy::Direct.example DIRECT;\n",
				"/etc/apt/apt.conf.d/02proxy.conf=Acquire { Retries \"3\"; http { Pipeline-Depth 5; Proxy \"http://late.example:3142/\"; }; https::Proxy \"https://tls.example:8443\"; };\n#clear X;\n",
				"/etc/apt/apt.conf.d/03.bak=Acquire::http::Proxy \"http://no.example\";"),
			[]string{"a.example mirror of /etc/apt/sources.list", "late.example:3142 proxy of /etc/apt/apt.conf.d/02proxy.conf", "tls.example:8443 proxy of /etc/apt/apt.conf.d/02proxy.conf"},
		},
		{
			"not a system with apt", env(), machine(),
			[]string{"error: neither /etc/apt/sources.list nor a file of /etc/apt/sources.list.d names a mirror that is reached by http or https; write the host by name instead of @apt"},
		},
	})
}

func TestGitRemotesGroup(t *testing.T) {
	config := func(dir, text string) []string {
		return append(repository(dir), dir+"/config="+text)
	}
	origin := "[remote \"origin\"]\n\turl = git@git.example:team/p.git\n"
	testGroup(t, "@git-remotes", []groupTest{
		{
			"remotes", env(), machine(config("/home/u/p/.git", origin+"\tpushurl = ssh://git@push.example:2222/p.git\n[remote \"up\"]\n\turl = https://u:p@up.example:8443/p.git\n[remote \"local\"]\nurl = ../q\n[remote \"disk\"]\nurl = file:///srv/p\n[branch \"main\"]\nurl = https://no.example\n")),
			[]string{"git.example:22 remote.origin.url of /home/u/p/.git/config", "push.example:2222 remote.origin.pushurl of /home/u/p/.git/config", "up.example:8443 remote.up.url of /home/u/p/.git/config"},
		},
		{
			"rewritten by the user", env(), machine(config("/home/u/p/.git", "[remote \"o\"]\nurl = gh:team/p\n[remote \"x\"]\nurl = https://x.example/p\n"),
				"/home/u/.gitconfig=[url \"ssh://git@long.example/\"]\ninsteadOf = gh:team/\n[url \"https://t:s@git.example/\"]\ninsteadOf = gh:\n[include]\npath = more.inc\n", "/home/u/more.inc=[url \"git@x.example:\"]\npushInsteadOf = https://x.example/"),
			[]string{"long.example:22 remote.o.url of /home/u/p/.git/config", "x.example remote.x.url of /home/u/p/.git/config", "x.example:22 remote.x.url of /home/u/p/.git/config"},
		},
		{
			"remotes of the user's configuration are none of the project's", env(), machine(config("/home/u/p/.git", origin), "/home/u/.gitconfig=[remote \"r\"]\nurl = https://r.example"),
			[]string{"git.example:22 remote.origin.url of /home/u/p/.git/config"},
		},
		{
			"submodules", env(), machine(config("/home/u/p/.git", origin+"[submodule \"s\"]\nactive = true\nurl = https://s.example/s\n"), config("/home/u/p/.git/modules/lib/t", "[remote \"origin\"]\nurl = https://t.example/t\n"),
				"/home/u/p/.gitmodules=[submodule \"e\"]\nurl = https://no.example/e\n"),
			[]string{"git.example:22 remote.origin.url of /home/u/p/.git/config", "s.example submodule.s.url of /home/u/p/.git/config", "t.example remote.origin.url of /home/u/p/.git/modules/lib/t/config"},
		},
		{
			"a worktree", env(), machine(config("/home/u/main/.git", origin), "/home/u/p/.git=gitdir: /home/u/main/.git/worktrees/p\n",
				"/home/u/main/.git/worktrees/p/gitdir=/home/u/p/.git\n", "/home/u/main/.git/worktrees/p/commondir=../..\n", "/home/u/main/.git/worktrees/p/config.worktree=[remote \"w\"]\nurl=https://w.example\n"),
			[]string{"git.example:22 remote.origin.url of /home/u/main/.git/config", "w.example remote.w.url of /home/u/main/.git/worktrees/p/config.worktree"},
		},
		{
			"a pointer that nothing returns", env(), machine(config("/home/u/other/.git", origin), "/home/u/p/.git=gitdir: /home/u/other/.git\n"),
			[]string{"error: /home/u/p is no git repository, or its .git leads to one that does not lead back; write the host by name instead of @git-remotes"},
		},
		{
			"no remote", env(), machine(repository("/home/u/p/.git")),
			[]string{"error: /home/u/p/.git/config names no remote that is reached by https or ssh; write the host by name instead of @git-remotes"},
		},
		{
			"no repository", env(), machine(),
			[]string{"error: /home/u/p is no git repository, or its .git leads to one that does not lead back; write the host by name instead of @git-remotes"},
		},
	})
}

func TestGitURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://git.example/p.git":             "git.example:0",
		"HTTP://Git.Example.:8080/p":            "git.example:8080",
		"ssh://git.example/p":                   "git.example:22",
		"ssh://u@git.example:2222/p":            "git.example:2222",
		"git+ssh://u@git.example/p":             "git.example:22",
		"git.example:p":                         "git.example:22",
		"u@git.example:p/q:r":                   "git.example:22",
		"u@[2001:db8::1]:p":                     "2001:db8::1:22",
		"[2001:db8::1]:p":                       "2001:db8::1:22",
		"[git.example:2222]:p":                  "git.example:2222",
		"[u@git.example:2222]:p":                "git.example:2222",
		"ssh://[2001:db8::1]:2222/p":            "2001:db8::1:2222",
		"git://git.example/p":                   "",
		"file:///srv/p":                         "",
		"/srv/p:q":                              "",
		"./p:q":                                 "",
		"../p":                                  "",
		"p":                                     "",
		"":                                      "",
		":p":                                    "",
		"ext::sh -c x":                          "",
		"https://*/p":                           "",
		"*:p":                                   "",
		"https://git.example\\@evil.example/":   "",
		"https://git.example:0/":                "",
		"https://git.example:+1/":               "",
		"https://git.example:99999/":            "",
		"https://[::1%25eth0]/":                 "",
		"https://[192.0.2.1]/":                  "",
		"https://::1/":                          "",
		"https://127.1/":                        "",
		"https://2130706433/":                   "",
		"https://0x7f.1/":                       "",
		"https://bücher.example/":               "",
		"https://\u212a.example/":               "",
		"https://a..example/":                   "",
		"https://a b.example/":                  "",
		"https:///p":                            "",
		"https://u:p@/p":                        "",
		"https://a.example@b.example/":          "b.example:0",
		"https://a.example#@b.example/":         "a.example:0",
		"https://" + strings.Repeat("a", 64):    "",
		"https://" + strings.Repeat("a.", 200):  "",
		"https://192.0.2.1:8443/simple?x=y#z@w": "192.0.2.1:8443",
	} {
		got := ""
		if e, ok := gitEndpoint(url); ok {
			got = fmt.Sprintf("%s:%d", e.Host, e.Port)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", url, got, want)
		}
	}
}

func TestFilesThatAreNotBelievedOpenNothing(t *testing.T) {
	evil := "https://evil.example"
	f := machine(npmInstalled, pipInstalled, repository("/home/u/p/.git"), repository("/home/u/p/.git/modules/m"),
		"/home/u/p/.git/modules/m/config=[remote \"o\"]\nurl = https://module.example/m", "/home/u/p/.git/config=[remote \"o\"]\nurl = https://git.example/p\n[include]\npath = ../team.inc\n",
		"/home/u/p/team.inc=[remote \"e\"]\nurl="+evil, "/home/u/p/.npmrc -> /srv/evil", "/srv/evil=registry="+evil, "/home/u/p/.yarnrc.yml=npmRegistryServer: "+evil, "/home/u/.yarnrc -> p/.yarnrc.yml",
		"/home/u/p/pyproject.toml=[tool.uv]\nindex-url='"+evil+"'", "/home/u/p/.venv/pip.conf=[global]\nindex-url="+evil,
		"/home/u/p/.venv/bin/python3 -> /usr/bin/python3", "/home/u/p/.venv/lib/python3.11/site-packages/pip/_internal/models/index.py=X = PackageIndex(\""+evil+"\", file_storage_domain=\"evil.example\")",
		"/home/u/p/node_modules/.bin/npm -> ../npm/bin/npm-cli.js", "/home/u/p/node_modules/npm/bin/npm-cli.js", "/home/u/p/node_modules/npm/lib/config/defaults.js=registry: '"+evil+"'",
		"/home/u/p/.cargo/config.toml=registries.e.index='"+evil+"'", "/home/u/.cargo/registry/index/index.example-1/config.json={}")
	environ := []string{"PATH=/home/u/p/node_modules/.bin:/home/u/p/.venv/bin:/usr/bin", "VIRTUAL_ENV=/home/u/p/.venv"}
	// As a compiled policy has it: of the project, the command can write all but
	// what is protected.
	isProtected := func(p string) bool {
		return !Covers("/home/u/p", p) || Covers("/home/u/p/.git", p) && path.Base(p) == "config"
	}
	for _, group := range []string{"@npm", "@pip", "@cargo", "@git-remotes"} {
		all := newGroups(f, "/home/u", "/home/u/p", environ)
		if got := strings.Join(found(all, group), "\n"); !strings.Contains(got, "evil.example") {
			t.Errorf("%s: with every file believed: %q", group, got)
		}
		some := newGroups(f, "/home/u", "/home/u/p", environ)
		some.believe = isProtected
		got := found(some, group)
		if len(got) == 0 || strings.Contains(strings.Join(got, "\n"), "evil") || strings.HasPrefix(got[0], "error") {
			t.Errorf("%s: %q", group, got)
		}
		if group == "@git-remotes" && len(got) != 2 {
			t.Errorf("%s: %q, want the remotes of the repository and of its submodule", group, got)
		}
		if len(some.notes) == 0 || !strings.HasPrefix(some.notes[0], group+": /home/u/p/") {
			t.Errorf("%s: notes %q", group, some.notes)
		}
	}
}

func TestSecretsStayOutOfWhatIsShown(t *testing.T) {
	f := machine(npmInstalled, repository("/home/u/p/.git"), "/home/u/.npmrc=registry=https://u:hunter2@*/\n",
		"/home/u/p/.git/config=[url \"https://u:hunter2@git.example/\"]\ninsteadOf = x:\n[remote \"o\"]\nurl = x:y\n[remote \"q\"]\nurl = https://u:hunter2@%/")
	g := newGroups(f, "/home/u", "/home/u/p", env("PIP_INDEX_URL=hunter2", "GOPROXY=https://u:hunter2@a b/", "GOSUMDB=off"))
	for _, group := range []string{"@npm", "@pip", "@go", "@git-remotes"} {
		if got := strings.Join(append(found(g, group), g.notes...), "\n"); got == "" || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q", group, got)
		}
	}
}

func TestControlCharactersAreNotShown(t *testing.T) {
	g := newGroups(machine(npmInstalled, "/home/u/.npmrc=@\x1b[2J:registry=https://a.example\n@\x9b:registry=nonsense\n"), "/home/u", "", env())
	got := strings.Join(append(found(g, "@npm"), g.notes...), "\n")
	if !strings.Contains(got, "a.example") || !strings.Contains(got, "names no host") || !plain.IsText(strings.ReplaceAll(got, "\n", "")) {
		t.Errorf("got %q", got)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, test := range []struct {
		group, file, want string
	}{
		{"@npm", "/home/u/.npmrc=" + lines(maxEndpoints+1, "@s%d:registry=https://a.example\n"), "/home/u/.npmrc has more registries than can be true"},
		{"@npm", "/home/u/.npmrc=registry=https://a.example\n" + strings.Repeat("#", maxGroupFile), "/home/u/.npmrc cannot be read: too large"},
		{"@npm", "/home/u/.yarnrc=" + lines(maxEndpoints+1, "registry https://a%d.example\n"), "stands for more than 256 hosts"},
		{"@git-remotes", "/home/u/p/.git/config=" + lines(maxGitEntries+1, "[remote \"%d\"]\nurl = x\n"), "/home/u/p/.git/config has more remotes than can be looked at"},
		{"@apt", "/etc/apt/sources.list=" + lines(50_000, "deb http://*%d\n"), "mirror of /etc/apt/sources.list names no host"},
	} {
		f := machine(repository("/home/u/p/.git"))
		f.add(test.file)
		_, err := newGroups(f, "/home/u", "/home/u/p", env()).Endpoints(test.group)
		if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 4000 {
			t.Errorf("%s: got %v, want %s", test.group, err, test.want)
		}
	}
	long := strings.Repeat("x", maxValue) + "$A"
	if got := (&finding{groups: newGroups(machine(), "", "", []string{"A=b"})}).expand(long); got != long {
		t.Error("a value of any length is looked through")
	}
	f := machine()
	for i := range maxGroupNames + 1 {
		f.add(fmt.Sprintf("/etc/apt/sources.list.d/%d.list=deb http://a.example x", i))
	}
	if _, err := newGroups(f, "/home/u", "/home/u/p", env()).Endpoints("@apt"); err == nil {
		t.Error("a directory of any size is read")
	}
}

func TestGroupsTellWhatTheyCannotKnow(t *testing.T) {
	g := newGroups(machine(), "", "", nil)
	for _, group := range []string{"@npm", "@pip", "@go", "@cargo", "@apt", "@git-remotes"} {
		_, err := g.Endpoints(group)
		var u *unresolved
		if !errors.As(err, &u) || !strings.HasSuffix(err.Error(), "; write the host by name instead of "+group) {
			t.Errorf("%s: %v", group, err)
		}
	}
	if _, err := g.Endpoints("@nmp"); err == nil {
		t.Error("@nmp is a group")
	}
}

func TestMachineIsAskedOnceForEachGroup(t *testing.T) {
	f := machine("/home/u/.npmrc=registry=https://early.example")
	g := newGroups(f, "/home/u", "/home/u/p", env())
	before := found(g, "@npm")
	f.add("/home/u/.npmrc=registry=https://later.example")
	if after := found(g, "@npm"); !slices.Equal(before, after) {
		t.Errorf("got %q, then %q", before, after)
	}
}

func TestParseTOML(t *testing.T) {
	for in, want := range map[string]string{
		"a = 'b'":                                 "a=b",
		"[t]\na.b = \"c\" # x\n":                  "t.a.b=c",
		"[[t.\"u v\"]]\n'k' = '''l\nm'''\nn='o'":  "t.u v.k=l\nm t.u v.n=o",
		"a = [\n 'b', # ]\n \"c\",\n]\nd = 'e'":   "a=b a=c d=e",
		"a = { b = 'c', d = {e = 'f'} }\ng='h'":   "a.b=c a.d.e=f g=h",
		"a = 1\nb = true\nc = 1979-05-27\nd='e'":  "d=e",
		"a = \"x\\\"y\\\\z\\u0061\"":              `a=x"y\z\u0061`,
		"a = 'b\nc = 'd'":                         "a=b c=d",
		"= 'b'\na\nc = 'd'":                       "c=d",
		"[\n]\nc = 'd'\n[e]\nf='g'":               "e.f=g",
		"a = [[['b']]]":                           "a=b",
		strings.Repeat("a.", 20) + "a='b'\nc='d'": "c=d",
		"a = " + strings.Repeat("[", 99) + "'b'":  "",
		"":                                        "",
		"a =":                                     "",
		"[":                                       "",
	} {
		var got []string
		for _, s := range parseTOML(in) {
			got = append(got, strings.Join(s.path, ".")+"="+s.value)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	got := []string{"3.9.18", "v22.1.0", "3.13.0", "3.13.0rc1", "3.09.2", "pypy", "3.13"}
	slices.SortFunc(got, compareVersions)
	if want := []string{"3.09.2", "3.9.18", "3.13", "3.13.0", "3.13.0rc1", "pypy", "v22.1.0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// checkEndpoints holds what must be true of whatever a file says.
func checkEndpoints(t *testing.T, endpoints []grants.Endpoint) {
	t.Helper()
	if len(endpoints) > maxEndpoints {
		t.Errorf("%d hosts", len(endpoints))
	}
	for _, e := range endpoints {
		name, again := hostOf(strings.TrimPrefix(e.Host, "*."))
		if strings.Contains(e.Host, ":") {
			name, again = hostOf("[" + e.Host + "]")
		}
		if !again || name != strings.TrimPrefix(e.Host, "*.") || e.From == "" {
			t.Errorf("granted %+v", e)
		}
	}
}

// FuzzGroups gives one text to every file and variable that a group reads.
func FuzzGroups(f *testing.F) {
	for _, seed := range []string{
		"registry=https://${HOST:-a.example}/\n@s:registry='https://b.example'\n", "npmRegistryServer: \"https://a.example\"\n", npmDefinitionsText, pipIndexText,
		"[global]\nindex-url = https://a.example\nextra-index-url =\n https://b.example\n", "GOPROXY=https://a.example,direct\nGOPRIVATE=*.b.example\n",
		"[source.crates-io]\nreplace-with = 'a'\n[source]\na = { registry = \"sparse+https://a.example\" }\n", "[[tool.uv.index]]\nurl = \"https://a.example\"\n",
		"deb [a=b] http://a.example x\n", "Types: deb\nURIs: http://a.example\n http://b.example\n", "Acquire { http { Proxy \"http://a.example:1\"; }; };",
		"[remote \"o\"]\nurl = git@a.example:p\n[url \"https://b.example/\"]\ninsteadOf = git@a.example:\n", "{\"dl\": \"https://a.example\"}", "https://*/", "a = [[[{b='",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, " -> ") {
			return // means a link to the fake machine
		}
		m := machine(npmInstalled, pipInstalled, goInstalled, repository("/home/u/p/.git"))
		for _, file := range []string{
			"/home/u/.npmrc", "/home/u/.yarnrc", "/home/u/.yarnrc.yml", "/usr/lib/node_modules/npm/lib/config/defaults.js", "/etc/pip.conf", "/etc/uv/uv.toml", "/home/u/p/pyproject.toml",
			"/home/u/.config/go/env", "/home/u/.cargo/config.toml", "/home/u/.cargo/registry/index/a.example-1/config.json", "/etc/apt/sources.list", "/etc/apt/sources.list.d/a.sources",
			"/etc/apt/apt.conf", "/home/u/p/.git/config", "/home/u/.gitconfig",
		} {
			m.add(file + "=" + text)
		}
		for _, environ := range [][]string{env("HOST=h.example"), env("GOPROXY="+text, "GOSUMDB="+text, "GOPRIVATE="+text, "PIP_INDEX_URL="+text, "UV_INDEX="+text, "npm_config_registry="+text)} {
			g := newGroups(m, "/home/u", "/home/u/p", environ)
			for _, group := range []string{"@npm", "@pip", "@go", "@cargo", "@apt", "@git-remotes"} {
				endpoints, err := g.Endpoints(group)
				checkEndpoints(t, endpoints)
				if err != nil && len(endpoints) > 0 {
					t.Errorf("%s: both %v and %v", group, endpoints, err)
				}
			}
		}
	})
}

func FuzzGitURL(f *testing.F) {
	for _, seed := range []string{"https://u:p@a.example:1/x", "git@a.example:x", "[u@a.example:1]:x", "u@[::1]:x", "ssh://[::1]:22/x", "a::b", "]:", "[:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if e, ok := gitEndpoint(url); ok {
			e.From = "x"
			checkEndpoints(t, []grants.Endpoint{e})
		}
	})
}

func FuzzTOML(f *testing.F) {
	for _, seed := range []string{"a.b = 'c'\n[[d]]\ne = [\"f\", {g = '''h'''}]\n", "[a\n=b", "a = [[[", "'\\", "\"\"\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseTOML(text) {
			if len(s.path) == 0 || len(s.path) > maxDepth || len(s.value) > len(text) {
				t.Errorf("%q gives %+v", text, s)
			}
		}
	})
}

func FuzzAptConf(f *testing.F) {
	for _, seed := range []string{"A::b \"c\";", "A { b \"c\"; d { e f; }; };", "} } ; // x\n/* y", "\"", "a{{{{{{{{{{{{b c;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseAptConf(text) {
			if s.key == "" || len(s.value) > len(text) {
				t.Errorf("%q gives %+v", text, s)
			}
		}
		for _, fields := range parseDeb822(text) {
			for name := range fields {
				if name == "" {
					t.Errorf("%q gives a field without a name", text)
				}
			}
		}
	})
}

func FuzzINI(f *testing.F) {
	for _, seed := range []string{"[a]\nb = c\n  d\ne: f\n", " x\n[", "=\n:", "[a]\n;b\n c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseINI(text) {
			if s.key == "" || len(s.value) > len(text) {
				t.Errorf("%q gives %+v", text, s)
			}
		}
	})
}
