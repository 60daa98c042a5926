package doctest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// document is a Markdown file, taken apart.
type document struct {
	links  []link
	blocks []block
	slugs  []string
}

type link struct {
	line   int
	target string
}

type block struct {
	line int
	text string
}

func TestLinksLeadSomewhere(t *testing.T) {
	root := testenv.ModuleRoot(t)
	for _, file := range documents(t, root) {
		for _, l := range parse(read(t, file)).links {
			path, anchor, _ := strings.Cut(l.target, "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			info, err := os.Stat(target)
			switch {
			case err != nil:
				t.Errorf("%s:%d: %s does not exist", file, l.line, l.target)
			case anchor != "" && !info.IsDir() && !slices.Contains(parse(read(t, target)).slugs, anchor):
				t.Errorf("%s:%d: %s has no heading #%s", file, l.line, filepath.Base(target), anchor)
			}
		}
	}
}

func TestMarkedCommandsRun(t *testing.T) {
	testenv.Requires(t, testenv.Program("bash"), testenv.UserNamespaces)
	root := testenv.ModuleRoot(t)
	for _, file := range documents(t, root) {
		for _, b := range parse(read(t, file)).blocks {
			name := strings.TrimPrefix(file, root+"/")
			t.Run(fmt.Sprintf("%s:%d", name, b.line), func(t *testing.T) {
				shell := exec.Command("bash", "-euo", "pipefail", "-c", b.text)
				shell.Dir = t.TempDir()
				// The developer's own home is none to install hooks in.
				shell.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(testenv.Binary(t, "bailey"))+":"+os.Getenv("PATH"))
				if out, err := shell.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s\n%s", err, b.text, out)
				}
			})
		}
	}
}

func TestParseTellsTextFromCode(t *testing.T) {
	got := parse("# A *bold* Title, 1.0\n[a](b.md#c) `[x](y)` [out](https://example.org)\n\n```sh test\necho [q](r)\n```\n```sh\nnot marked\n```\n")
	want := document{
		links:  []link{{2, "b.md#c"}},
		blocks: []block{{4, "echo [q](r)\n"}},
		slugs:  []string{"a-bold-title-10"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

var (
	linkPattern   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codePattern   = regexp.MustCompile("`[^`]*`")
	schemePattern = regexp.MustCompile(`^[a-z]+:`)
	notInSlug     = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

func parse(text string) document {
	var d document
	var fence *block
	marked := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		if info, isFence := strings.CutPrefix(strings.TrimSpace(line), "```"); isFence {
			if fence == nil {
				words := strings.Fields(info)
				fence, marked = &block{line: number}, len(words) == 2 && words[1] == "test"
				continue
			}
			if marked {
				d.blocks = append(d.blocks, *fence)
			}
			fence = nil
			continue
		}
		if fence != nil {
			fence.text += line
			continue
		}
		d.addText(number, line)
	}
	return d
}

func (d *document) addText(number int, line string) {
	if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
		d.slugs = append(d.slugs, slug(heading))
	}
	for _, match := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, ""), -1) {
		if !schemePattern.MatchString(match[1]) {
			d.links = append(d.links, link{number, match[1]})
		}
	}
}

// slug is the anchor that the usual renderers give a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}

func documents(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", ".cache", "benchmarks", "testdata", "node_modules"}, entry.Name()) {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
