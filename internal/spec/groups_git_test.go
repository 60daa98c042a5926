package spec

import "testing"

func TestRemotesBySSHAreOfNoOtherProtocol(t *testing.T) {
	for url, want := range map[string]struct {
		port uint16
		ssh  bool
	}{
		"git@git.example:p":           {22, true},
		"[git@git.example:2222]:p":    {2222, true},
		"ssh://git.example/p":         {22, true},
		"ssh://git@git.example:443/p": {443, true},
		"git+ssh://git.example:2222/": {2222, true},
		"https://git.example/p":       {0, false},
		"https://git.example:2222/p":  {2222, false},
		"http://git.example:22/p":     {22, false},
	} {
		if e, ok := gitEndpoint(url); !ok || e.Port != want.port || e.SSH != want.ssh {
			t.Errorf("%s is %+v, %v; want port %d, by ssh %v", url, e, ok, want.port, want.ssh)
		}
	}
}

// A forge that is reached by ssh on the port of HTTPS, and by HTTPS.
func TestOneHostIsFoundByBothProtocols(t *testing.T) {
	m := machine(append(repository("/home/u/p/.git"),
		"/home/u/p/.git/config=[remote \"a\"]\n\turl = https://git.example/p\n[remote \"b\"]\n\turl = ssh://git@git.example:443/p\n"))
	found, err := newGroups(m, "/home/u", "/home/u/p", env()).Endpoints("@git-remotes")
	if err != nil || len(found) != 2 || found[0].SSH || !found[1].SSH {
		t.Errorf("found %+v, %v", found, err)
	}
}
