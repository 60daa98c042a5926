package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// file is a member of an archive.
type file struct{ name, text string }

func tarball(t *testing.T, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))})
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		member, err := w.Create(f.name)
		if err == nil {
			_, err = io.WriteString(member, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// offer serves bytes at a path.
func (s *site) offer(path string, data []byte) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(data))
	})
}

func TestNPMInstallsFromAGrantedRegistry(t *testing.T) {
	testenv.Requires(t, testenv.Program("npm"))
	atSite(t, func(t *testing.T, s *site) {
		const code = "module.exports = 'hello'\n"
		pack := tarball(t, file{"package/package.json", `{"name": "greeting", "version": "1.2.3"}`}, file{"package/index.js", code})
		s.offer("/npm/greeting/-/greeting-1.2.3.tgz", pack)
		sum := sha512.Sum512(pack)
		s.mux.HandleFunc("GET /npm/greeting", func(w http.ResponseWriter, r *http.Request) {
			version := map[string]any{"name": "greeting", "version": "1.2.3", "dist": map[string]any{
				"tarball":   "https://" + r.Host + "/npm/greeting/-/greeting-1.2.3.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			}}
			_ = json.NewEncoder(w).Encode(map[string]any{
				"name": "greeting", "dist-tags": map[string]any{"latest": "1.2.3"}, "versions": map[string]any{"1.2.3": version},
			})
		})
		installs := 0
		npm := client{
			name: "npm",
			argv: func(host string) []string {
				installs++
				return []string{
					"npm", "install", "--registry=https://" + host + "/npm/", "--prefix", fmt.Sprint("app", installs),
					"--fetch-retries=0", "--no-audit", "--no-fund", "--no-update-notifier", "--prefer-online", "greeting",
				}
			},
			works: func(r result) error {
				return s.leaves(map[string]string{fmt.Sprintf("app%d/node_modules/greeting/index.js", installs): code})(r)
			},
		}
		s.reaches(t, npm)
		s.isGivenCredentials(t, npm)
	})
}

// systemPip may not be the first in PATH.
const systemPip = "/usr/bin/pip3"

func TestPipInstallsFromAGrantedIndex(t *testing.T) {
	testenv.Requires(t, testenv.File(systemPip))
	atSite(t, func(t *testing.T, s *site) {
		const name, code, info = "greeting-1.2.3-py3-none-any.whl", "TEXT = 'hello'\n", "greeting-1.2.3.dist-info/"
		wheel := zipped(t,
			file{"greeting.py", code},
			file{info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.2.3\n"},
			file{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
			file{info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
		)
		s.offer("/files/"+name, wheel)
		s.mux.HandleFunc("GET /simple/greeting/", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `<!DOCTYPE html><a href="/files/%s#sha256=%x">%s</a>`, name, sha256.Sum256(wheel), name)
		})
		pip := client{
			name: "pip",
			argv: func(host string) []string {
				return []string{
					systemPip, "install", "--index-url", "https://" + host + "/simple/", "--retries", "0", "--no-cache-dir",
					"--disable-pip-version-check", "--no-compile", "--upgrade", "--target", "packages", "greeting",
				}
			},
			works: s.leaves(map[string]string{"packages/greeting.py": code}),
		}
		s.reaches(t, pip)
		s.isGivenCredentials(t, pip)
	})
}

func TestGoDownloadsModulesFromAGrantedProxy(t *testing.T) {
	testenv.Requires(t, testenv.Program("go"))
	atSite(t, func(t *testing.T, s *site) {
		const at, mod, code = "/goproxy/greeting.example/hello/@v/v1.2.3", "module greeting.example/hello\n", "package hello\n"
		s.offer(at+".info", []byte(`{"Version": "v1.2.3"}`))
		s.offer(at+".mod", []byte(mod))
		s.offer(at+".zip", zipped(t, file{"greeting.example/hello@v1.2.3/go.mod", mod}, file{"greeting.example/hello@v1.2.3/hello.go", code}))
		goCommand, err := exec.LookPath("go")
		if err != nil {
			t.Fatal(err)
		}
		downloads := 0
		s.reaches(t, client{
			name: "go mod download",
			argv: func(host string) []string {
				downloads++
				cache := fmt.Sprintf("%s/cache%d", s.dir, downloads)
				return []string{
					"env", "GOPROXY=https://" + host + "/goproxy", "GOSUMDB=off", "GOMODCACHE=" + cache, "GOFLAGS=-modcacherw",
					"GOTOOLCHAIN=local", goCommand, "mod", "download", "-json", "greeting.example/hello@v1.2.3",
				}
			},
			works: func(r result) error {
				return s.leaves(map[string]string{fmt.Sprintf("cache%d/greeting.example/hello@v1.2.3/hello.go", downloads): code})(r)
			},
		})
	})
}

func TestAptDownloadsFromAGrantedArchive(t *testing.T) {
	testenv.Requires(t, testenv.Program("apt-get"), testenv.Program("dpkg-deb"))
	atSite(t, func(t *testing.T, s *site) {
		deb := s.makeArchive(t)
		s.makeAptState(t)
		s.reaches(t, client{
			name: "apt-get",
			argv: func(host string) []string {
				list := s.write("sources.list", "deb [trusted=yes] http://"+host+"/apt ./\n", 0o644)
				get := "apt-get -c apt.conf -o Dir::Etc::SourceList=" + list
				return []string{"sh", "-c", get + " update && " + get + " install --yes --download-only greeting"}
			},
			works: s.leaves(map[string]string{"cache/archives/greeting_1.2.3_all.deb": deb}),
		})
	})
}

// makeArchive serves a flat archive with one package, and returns the package.
func (s *site) makeArchive(t *testing.T) string {
	t.Helper()
	const control = "Package: greeting\nVersion: 1.2.3\nArchitecture: all\nMaintainer: nobody <nobody@granted.example>\nDescription: a greeting\n"
	tree := filepath.Join(s.home, "greeting")
	if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("dpkg-deb", "--build", tree, tree+".deb").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	deb, err := os.ReadFile(tree + ".deb")
	if err != nil {
		t.Fatal(err)
	}
	packages := fmt.Sprintf("%sFilename: ./greeting_1.2.3_all.deb\nSize: %d\nSHA256: %x\n", control, len(deb), sha256.Sum256(deb))
	release := fmt.Sprintf("Date: %s\nSHA256:\n %x %d Packages\n",
		time.Now().UTC().Format(time.RFC1123), sha256.Sum256([]byte(packages)), len(packages))
	s.offer("/apt/greeting_1.2.3_all.deb", deb)
	s.offer("/apt/Packages", []byte(packages))
	s.offer("/apt/Release", []byte(release))
	return string(deb)
}

// makeAptState gives apt a machine of its own in the project.
func (s *site) makeAptState(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write("status", "", 0o644)
	// There is no other user inside whom it could become.
	s.write("apt.conf", strings.Join([]string{
		`APT::Sandbox::User "root";`, `APT::Update::Error-Mode "any";`, `Acquire::Retries "0";`, `Acquire::Languages "none";`,
		`Dir::State "` + s.dir + `/state";`, `Dir::State::status "` + s.dir + `/status";`, `Dir::Cache "` + s.dir + `/cache";`,
		`Dir::Etc::SourceParts "/dev/null";`,
	}, "\n"), 0o644)
}

func TestGitPushesToAGrantedServer(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	atSite(t, func(t *testing.T, s *site) {
		repositories := s.serveGit(t)
		blob := make([]byte, 3<<20) // more than git sends in one piece
		_, _ = rand.Read(blob)
		s.write("blob", string(blob), 0o644)
		for _, argv := range [][]string{
			{"init", "-q", "-b", "main"},
			{"add", "blob"},
			{"-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-qm", "blob"},
		} {
			s.git(t, s.dir, argv...)
		}
		pushed := 0
		s.reaches(t, client{
			name: "push and clone",
			argv: func(host string) []string {
				pushed++
				name := fmt.Sprintf("%d.git", pushed)
				s.git(t, repositories, "init", "-q", "--bare", "-b", "main", name)
				return []string{
					"sh", "-ec", `git push -q "http://$0/git/$1" main && git clone -q "https://$0/git/$1" "copy$1"`, host, name,
				}
			},
			works: func(r result) error {
				return s.leaves(map[string]string{fmt.Sprintf("copy%d.git/blob", pushed): string(blob)})(r)
			},
		})
	})
}

func (s *site) git(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.Command("git", argv...)
	cmd.Dir, cmd.Env = dir, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", argv, err, out)
	}
}

// serveGit serves repositories of a directory below /git/, to fetch from and to
// push to.
func (s *site) serveGit(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(s.home, "repositories")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	programs, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=t"}, InheritEnv: []string{"HOME"},
	}
	s.mux.HandleFunc("/git/", func(w http.ResponseWriter, r *http.Request) {
		// CGI knows no pieces.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		backend.ServeHTTP(w, r)
	})
	return dir
}
