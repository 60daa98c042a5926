package policy

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func parse(t *testing.T, text string) Policy {
	t.Helper()
	p, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return *p
}

func TestMergeAppendsReplacesAndRemoves(t *testing.T) {
	base := parse(t, `{
		"extends": "code",
		"filesystem": {"allowRead": ["/a", "/b", "/c"], "strictDenyRead": true},
		"network": {"limits": {"connections": 1, "idle": "1m"}, "rules": [{"host": "a.com", "action": "deny"}]},
		"env": {"set": {"A": "1", "B": "1"}},
		"runtime": "native"
	}`)
	child := parse(t, `{
		"filesystem": {"allowRead": ["/d", "!/b", "/a", "!/nothing"], "strictDenyRead": false},
		"network": {"limits": {"connections": 2}, "rules": [{"host": "a.com", "action": "deny"}]},
		"env": {"set": {"B": "2"}},
		"runtime": "bwrap"
	}`)
	want := `{"filesystem":{"allowRead":["/a","/c","/d"],"strictDenyRead":false},` +
		`"network":{"rules":[{"host":"a.com","action":"deny"},{"host":"a.com","action":"deny"}],"limits":{"connections":2,"idle":"1m"}},` +
		`"env":{"set":{"A":"1","B":"2"}},"runtime":"bwrap"}`
	got := Merge(base, child)
	if text := strings.TrimSpace(string(Marshal(got, ""))); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if pos := got.Origins[Origin{"network.rules", "1"}]; pos != child.Origins[Origin{"network.rules", "0"}] {
		t.Errorf("second rule is from %v, want the child's place", pos)
	}
	if pos := got.Origins[Origin{"runtime", ""}]; pos != child.Origins[Origin{"runtime", ""}] {
		t.Errorf("runtime is from %v, want the child's place", pos)
	}
}

func TestRemovalCanBeGrantedAgain(t *testing.T) {
	got := mergeList([]string{"a", "b"}, []string{"!a", "a", "c", "!c"})
	if want := []string{"b", "a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// scribble overwrites everything a policy points to.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
			if v.Elem().Kind() != reflect.Struct {
				v.Elem().SetZero()
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
			v.Index(i).SetZero()
		}
	case reflect.Map:
		v.Clear()
	}
}

func TestResultsShareNothingWithTheirInputs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b := randomPolicy(r), randomPolicy(r)
		for name, combine := range map[string]func(a, b Policy) Policy{"Merge": Merge, "Intersect": Intersect} {
			x, y := Merge(Policy{}, a), Merge(Policy{}, b)
			got := combine(x, y)
			want := combine(a, b)
			scribble(reflect.ValueOf(&x).Elem())
			scribble(reflect.ValueOf(&y).Elem())
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: result changed with its inputs", name)
			}
		}
	}
	p := Default()
	scribble(reflect.ValueOf(&p).Elem())
	if fresh := Default(); len(fresh.Filesystem.AllowRead) == 0 || fresh.Filesystem.AllowRead[0] != "/usr" || !*fresh.Filesystem.DefaultDenyRead {
		t.Error("the default changed with a copy of it")
	}
}

func TestMergeWithNothingChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		p := randomPolicy(r)
		if got := Merge(p, Policy{}); !reflect.DeepEqual(got, p) {
			t.Fatalf("got  %s\nwant %s", Marshal(got, ""), Marshal(p, ""))
		}
	}
}
