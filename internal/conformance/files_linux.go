package conformance

import (
	"os"
	"strconv"
	"strings"
)

// base is a policy that asks for nothing that has to be decided while a command
// runs, so that every runtime can carry it.
const base = `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`

// Properties are what is tried, in the order of the page.
func Properties() []Property {
	var list []Property
	for _, part := range [][]Property{fileProperties, processProperties, networkProperties, kernelProperties, limitProperties} {
		list = append(list, part...)
	}
	return list
}

var fileProperties = []Property{
	{Name: "what is granted is read, what is not is not", Try: readGranted},
	{Name: "what is granted is written, what is not is not", Try: writeGranted},
	{Name: "the home directory and /tmp are private", Try: privateHome},
	{Name: "a denied path inside a grant is not read", Key: "filesystem.denyRead", Try: denyRead},
	{Name: "a denied path inside a grant is not written", Key: "filesystem.denyWrite", Try: denyWrite},
	{Name: "a file that a pattern denies is not read, however late it comes", Key: "filesystem.denyRead", Try: denyPattern},
	{Name: "git's hooks are not written", Try: protectHooks},
	{Name: "git's hooks are not replaced by renaming what is above them", Try: renameParents},
	{Name: "a protected path that is a link is not replaced", Key: "protected", Try: protectLink},
	{Name: "protected names do not come into being", Key: "filesystem.protectMissing", Try: protectMissing},
	{Name: "the default policy", Key: "filesystem.protectMissing", Try: defaultPolicy},
}

func readGranted(p *Place) {
	p.says(p.run(base, "cat", "file"), "granted")
	p.keeps(p.run(base, "cat", p.outside+"/file"))
	for _, way := range []string{"../../outside/file", "/proc/self/root" + p.outside + "/file", "/proc/self/cwd/../../outside/file"} {
		got := p.run(base, "cat", way)
		p.fails(got)
		p.keeps(got)
	}
	p.must(os.Symlink(p.outside+"/file", p.project+"/link"))
	p.keeps(p.run(base, "cat", "link"))
	granted := strings.Replace(base, `"filesystem": {`, `"filesystem": {"allowRead": ["`+p.outside+`"], `, 1)
	p.says(p.run(granted, "cat", "link"), secret)
}

func writeGranted(p *Place) {
	const line = `echo changed >"$1"`
	for _, target := range []string{p.outside + "/file", "../../outside/file", "/proc/self/root" + p.outside + "/file"} {
		p.fails(p.run(base, "sh", "-c", line, "sh", target))
	}
	// Nothing is written, should it be open.
	p.fails(p.shell(base, ": >>/etc/passwd"))
	if got := p.read(p.outside + "/file"); got != secret {
		p.Errorf("outside: %q", got)
	}
	p.works(p.run(base, "sh", "-c", line, "sh", "file"))
	if got := p.read(p.project + "/file"); got != "changed\n" {
		p.Errorf("control: the host sees %q, so the probe shows nothing", got)
	}
}

func privateHome(p *Place) {
	p.keeps(p.run(base, "cat", p.home+"/.ssh/id_ed25519"))
	p.says(p.shell(base, `echo own >"$HOME/own" && echo own >"${TMPDIR:-/tmp}/own" && cat "$HOME/own" "${TMPDIR:-/tmp}/own"`), "own\nown")
	if got := p.read(p.home + "/own"); got != "" {
		p.Errorf("the host's home has %q", got)
	}
	host, err := os.CreateTemp("/tmp", "bailey-conformance-")
	p.must(err)
	defer os.Remove(host.Name())
	_, err = host.WriteString(secret)
	p.must(err)
	p.must(host.Close())
	got := p.run(base, "cat", host.Name())
	p.fails(got)
	p.keeps(got)
}

// denying is the base with one more entry.
func denying(key, entry string) string {
	return strings.Replace(base, `"filesystem": {`, `"filesystem": {"`+key+`": ["`+entry+`"], `, 1)
}

func denyRead(p *Place) {
	p.write(p.project+"/sub/kept", secret)
	policy := denying("denyRead", p.project+"/sub/kept")
	got := p.run(policy, "cat", "sub/kept")
	p.fails(got)
	p.keeps(got)
	p.says(p.run(policy, "cat", "sub/file"), "granted")
	p.says(p.run(base, "cat", "sub/kept"), secret)
}

func denyWrite(p *Place) {
	policy := denying("denyWrite", p.project+"/sub")
	for _, line := range []string{"echo changed >sub/file", "mv sub gone", "rm -r sub", "touch sub/more", "chmod 0700 sub/file"} {
		p.fails(p.shell(policy, line))
	}
	if got := p.read(p.project + "/sub/file"); got != "granted" {
		p.Errorf("the host sees %q", got)
	}
	p.works(p.shell(policy, "echo changed >file && mkdir other && mv other gone"))
	p.works(p.shell(base, "echo changed >sub/file"))
}

func denyPattern(p *Place) {
	policy := denying("denyRead", "**/*.kept")
	p.write(p.project+"/sub/a.kept", secret)
	for _, line := range []string{"cat sub/a.kept", "cp sub/a.kept b; cat b", "ln sub/a.kept c; cat c", "mv sub/a.kept d; cat d"} {
		got := p.shell(policy, line)
		p.fails(got)
		p.keeps(got)
	}
	p.keeps(p.shell(policy, "echo '"+secret+"' >later.kept; cat later.kept 2>&1 | tail -n 1"))
	p.says(p.run(policy, "cat", "sub/file"), "granted")
	p.says(p.run(base, "cat", "sub/a.kept"), secret)
}

func protectHooks(p *Place) {
	const hook = ".git/hooks/pre-commit"
	before := p.read(p.project + "/" + hook)
	for _, line := range []string{"echo evil >" + hook, "rm " + hook, "touch .git/hooks/post-commit", "mv .git/hooks .git/h", "ln -sf /tmp/x " + hook} {
		p.fails(p.shell(base, line))
	}
	if got := p.read(p.project + "/" + hook); got != before {
		p.Errorf("the host sees %q", got)
	}
	p.works(p.shell(base, "echo x >.git/objects/x && mv .git/objects/x .git/objects/y"))
}

func renameParents(p *Place) {
	const hook = "/.git/hooks/pre-commit"
	before := p.read(p.project + hook)
	_ = p.shell(base, "mv .git g && cp -r g .git && echo evil >.git/hooks/pre-commit")
	_ = p.shell(base, "mv "+p.project+" "+p.home+"/gone")
	if got := p.read(p.project + hook); got != before {
		p.Errorf("the host sees %q", got)
	}
	p.works(p.shell(base, "mv sub s && cp -r s sub && echo x >sub/file"))
}

func protectLink(p *Place) {
	ways := []string{"rm -f %; ln -s evil %", "ln -s evil new; mv -fT new %", "mv % old; ln -s evil %"}
	p.must(os.Symlink("sub/file", p.project+"/.envrc"))
	var lines []string
	for i, way := range ways {
		other := "other" + strconv.Itoa(i)
		p.must(os.Symlink("sub/file", p.project+"/"+other))
		lines = append(lines, strings.ReplaceAll(way, "%", ".envrc"), "rm -f new", strings.ReplaceAll(way, "%", other))
	}
	p.says(p.shell(base, strings.Join(lines, "; ")+"; cat .envrc"), "granted")
	leadsTo := func(name string) string {
		text, err := os.Readlink(p.project + "/" + name)
		p.must(err)
		return text
	}
	if got := leadsTo(".envrc"); got != "sub/file" {
		p.Errorf("the host's link leads to %s", got)
	}
	for i, way := range ways {
		if got := leadsTo("other" + strconv.Itoa(i)); got != "evil" {
			p.Errorf("control: %s: the link leads to %s, so the probe shows nothing", way, got)
		}
	}
}

// missing is the base without leave to make names that are protected.
const missing = `{"filesystem": {"protectMissing": true}, "network": {"allowAllUnixSockets": true}}`

func protectMissing(p *Place) { p.probeMissing(missing) }

func defaultPolicy(p *Place) { p.probeMissing(`{}`) }

func (p *Place) probeMissing(policy string) {
	p.Helper()
	for _, line := range []string{"echo evil >.envrc", "mkdir .vscode && echo evil >.vscode/tasks.json", "echo x >y && mv y .mcp.json", "ln -s /tmp/x .envrc"} {
		_ = p.shell(policy, line)
	}
	for _, name := range []string{".envrc", ".vscode/tasks.json", ".mcp.json"} {
		if _, err := os.Lstat(p.project + "/" + name); err == nil {
			p.Errorf("%s was made", name)
		}
	}
	p.works(p.shell(policy, "echo fine >other && mkdir dir && echo fine >dir/tasks.json && mv other another"))
	p.works(p.shell(base, "echo fine >.envrc"))
}
