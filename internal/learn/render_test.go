package learn

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

var sample = Proposal{
	Read: []Grant{
		{Path: "/home/u/.nodenv", For: []string{"node", "npm"}, Note: "nodenv"},
		{Path: "/srv/data", For: []string{"a", "b", "c", "d"}},
	},
	Write: []Grant{{Path: "/home/u/app/out", For: []string{"cc\n\"}"}}},
	Hide:  []Grant{{Path: "/srv/data/.env", Note: "looks like a secret"}},
	Left: []Remark{
		{Why: Secret, Path: "/home/u/.aws/credentials", For: []string{"aws"}},
		{Why: Cache, Path: "/home/u/.cache/pip"},
	},
}

var names = Names{Home: "/home/u", Project: "/home/u/app"}

func TestProposalIsAPolicyWithComments(t *testing.T) {
	got := string(sample.Render("What make needed.", "default", names))
	want := `// What make needed.
{
  "extends": "default",
  "filesystem": {
    "allowRead": [
      "~/.nodenv", // node, npm, from nodenv
      "/srv/data", // a, b, c, …
    ],
    "allowWrite": [
      "out", // cc\x0a"}
    ],
    "denyRead": [
      "/srv/data/.env", // looks like a secret
    ],
    // looks like a secret, not granted: ~/.aws/credentials (aws)
    // a cache, not granted (if it is needed: privateWrite): ~/.cache/pip
  },
}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := policy.Parse("proposal", []byte(got)); err != nil {
		t.Error(err)
	}
	for _, p := range []Proposal{{}, {Left: sample.Left}} {
		if _, err := policy.Parse("proposal", p.Render("Nothing.", "/a \"b", names)); err != nil {
			t.Error(err)
		}
	}
}

func TestRemarksOfAKindAreFew(t *testing.T) {
	var p Proposal
	for range maxRemarks + 3 {
		p.Left = append(p.Left, Remark{Why: Secret, Path: "/s"})
	}
	p.Left = append(p.Left, Remark{Why: Looked, Path: "/l"})
	got := p.Remarks(names)
	if len(got) != maxRemarks+2 || got[maxRemarks] != "and 3 more such" || !strings.HasSuffix(got[maxRemarks+1], "/l") {
		t.Errorf("got %q", got)
	}
}

func TestPathsAreWrittenAsPeopleDo(t *testing.T) {
	for p, want := range map[string]string{
		"/home/u/x":      "~/x",
		"/home/u":        "/home/u",
		"/home/u/app":    ".",
		"/home/u/app/x":  "x",
		"/home/u/app/!x": "./!x",
		"/home/u/app/~":  "./~",
		"/home/u2/x":     "/home/u2/x",
		"/srv":           "/srv",
	} {
		if got := names.Of(p); got != want {
			t.Errorf("%s: got %q, want %q", p, got, want)
		}
		if got := names.Path(want); got != p {
			t.Errorf("%s: got %q, want %q", want, got, p)
		}
	}
}

func TestMergeKeepsWhatIsThere(t *testing.T) {
	p := Proposal{Read: []Grant{{Path: "/srv/a", For: []string{"cat"}}, {Path: "/srv/b"}}}
	for _, c := range []struct{ name, old, want string }{
		{"empty", "{}", "{\n  \"filesystem\": {\n    \"allowRead\": [\n      // cat\n      \"/srv/a\",\n      \"/srv/b\"\n    ]\n  }\n}"},
		{
			"comments",
			"// top\n{\n  // base\n  \"extends\": \"default\", // why\n  \"filesystem\": {\n    \"allowRead\": [\n      \"/x\", // x\n      // none\n    ], // reading\n  },\n}\n// end\n",
			"// top\n{\n  // base\n  \"extends\": \"default\", // why\n  \"filesystem\": {\n    \"allowRead\": [\n      \"/x\", // x\n      // none\n      // cat\n      \"/srv/a\",\n      \"/srv/b\"\n    ], // reading\n  },\n}\n// end\n",
		},
		{
			"a comment without a comma before it",
			"{\n  \"filesystem\": {\n    \"allowRead\": [\n      \"/srv/a\" // mine\n    ]\n  }\n}\n",
			"{\n  \"filesystem\": {\n    \"allowRead\": [\n      \"/srv/a\", // mine\n      \"/srv/b\"\n    ]\n  }\n}\n",
		},
		{
			"one line",
			`{"filesystem": {"allowRead": ["/x", "/srv/b"]}}`,
			"{\"filesystem\": {\"allowRead\": [\n      \"/x\", \"/srv/b\",\n      // cat\n      \"/srv/a\"\n    ]}}",
		},
		{
			"other lists",
			"{\n\t\"filesystem\": {\n\t\t\"denyRead\": []\n\t}\n}",
			"{\n\t\"filesystem\": {\n\t\t\"denyRead\": [],\n\t\t\"allowRead\": [\n      // cat\n      \"/srv/a\",\n      \"/srv/b\"\n\t\t]\n\t}\n}",
		},
		{"everything there", `{"filesystem":{"allowRead":["/srv/b","/srv/a"]}}`, `{"filesystem":{"allowRead":["/srv/b","/srv/a"]}}`},
	} {
		got, err := p.Merge("f", []byte(c.old), names)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: error %v, got\n%s\nwant\n%s", c.name, err, got, c.want)
		}
	}
	for _, bad := range []string{"", "[]", `{"filesystem": 1}`, `{"filesystem": {"allowRead": 1}}`, `{"typo": 1}`} {
		if got, err := p.Merge("f", []byte(bad), names); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func FuzzMergedFilesArePolicies(f *testing.F) {
	for _, seed := range []string{"{}", "// a\n{ // b\n}\n", `{"filesystem":{"allowRead":["/x" /* c */]}}`, `{"filesystem":{"allowWrite":[],},}`, "[]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		merged, err := sample.Merge("f", []byte(text), names)
		if err != nil {
			return
		}
		p, err := policy.Parse("f", merged)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, merged, err)
		}
		have := map[string]bool{}
		for _, entry := range p.Filesystem.AllowRead {
			have[entry] = true
		}
		if !have["~/.nodenv"] || !have["/srv/data"] {
			t.Errorf("%q became %q, which lacks a grant", text, merged)
		}
		again, err := sample.Merge("f", merged, names)
		if err != nil || string(again) != string(merged) {
			t.Errorf("merged again: error %v, got %q, want %q", err, again, merged)
		}
	})
}
