package bailey_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestStateNamesTheLimitThatWasMet(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	m := newManager(t, bailey.Config{Policy: `{"extends": "default", "resources": {"memory": "64M", "pids": 20}}`})
	err := m.Command("tail", "-n", "1", "/dev/zero").Run()
	var exit *bailey.ExitError
	if !errors.As(err, &exit) || !slices.Equal(exit.LimitsMet(), []string{"memory"}) || exit.Error() != "signal: killed (limit met: memory)" {
		t.Errorf("got %v, want it killed by the limit of memory", err)
	}
	ended := m.Command("true")
	if err := ended.Run(); err != nil || ended.State().LimitsMet() != nil {
		t.Errorf("got %v, %v; want no limit met", err, ended.State().LimitsMet())
	}
}

func TestABoxKeepsItsLimits(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	m := newManager(t, bailey.Config{Policy: `{"extends": "default", "resources": {"memory": "64M"}}`})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	for range 2 {
		var exit *bailey.ExitError
		if err := box.Command("tail", "-n", "1", "/dev/zero").Run(); !errors.As(err, &exit) || !slices.Equal(exit.LimitsMet(), []string{"memory"}) {
			t.Errorf("got %v, want it killed by the limit of memory", err)
		}
		if err := box.Command("true").Run(); err != nil {
			t.Errorf("the next command: %v", err)
		}
	}
}

func TestALimitThatCannotBeHeldStartsNothing(t *testing.T) {
	testenv.Requires(t, testenv.Unprivileged)
	m := newManager(t, bailey.Config{Policy: `{"extends": "default", "resources": {"memory": "64M"}}`})
	err := m.Command("true").Run()
	if err != nil && !strings.HasPrefix(err.Error(), "bailey: resources.memory 64M: ") {
		t.Errorf("got %v; want it held, or refused by name", err)
	}
}
