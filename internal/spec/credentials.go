package spec

import (
	"path"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// protectCredentials keeps the command away from where the gate takes credentials
// from: it must not read them, nor say which file is read or what program is run
// outside.
func (c *compiler) protectCredentials() {
	for i := range c.policy.Network.Inject {
		from, key := &c.policy.Network.Inject[i], "network.inject["+strconv.Itoa(i)+"]"
		if from.FromFile != "" {
			c.refuseSeenCredential(key+".fromFile", from)
		}
		for j, word := range from.FromCommand {
			c.protectWord(key+".fromCommand", word, j == 0)
		}
	}
}

// refuseSeenCredential refuses a file that the command could read itself, or put
// a link in the place of.
func (c *compiler) refuseSeenCredential(key string, from *policy.Injection) {
	file, err := grants.File(from.FromFile, c.host.Home, c.project)
	if err != nil {
		c.refuse(key, from.FromFile, err.Error(), "")
		return
	}
	r, err := c.facts.resolve(file)
	if err != nil {
		c.refuse(key, file, err.Error(), "")
		return
	}
	c.refuseIf(c.granted(r.path) == AccessWrite && r.missing, key, file, "does not exist and the sandbox could create it", "")
	c.refuseIf(c.granted(r.path) != AccessNone && !r.missing, key, file, "can be read in the sandbox, which is to have the credential not even then",
		`put it elsewhere, or add it to filesystem.denyRead`)
	if l, ok := c.replaceable(r.links); ok {
		c.refuse(key, file, "is reached through the link "+l.path+", which the sandbox can replace", "put what it names in its place")
	}
}

// protectWord protects what a word of a command names: the program, which may be
// looked for in PATH, or a file such as a script. The gate runs it in /.
func (c *compiler) protectWord(key, word string, isProgram bool) {
	switch {
	case strings.HasPrefix(word, "/"):
		if r, err := c.facts.resolve(path.Clean(word)); err != nil || r.info.Type != TypeDirectory {
			c.protectProgram(key, word)
		}
	case isProgram && strings.Contains(word, "/"):
		c.refuse(key, word, "is not an absolute path", "")
	case isProgram:
		for dir := range strings.SplitSeq(c.variable("PATH"), ":") {
			file := path.Join(dir, word)
			if !strings.HasPrefix(file, "/") {
				continue
			}
			c.protectProgram(key, file)
			if r, err := c.facts.resolve(file); err == nil && !r.missing {
				return
			}
		}
	}
}
