package bailey_test

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMisuseIsSaidAndTheRightWayWorks(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	program := testenv.Binary(t, "bailey")
	wait := func(c *bailey.Cmd) error {
		if err := c.Start(); err != nil {
			return err
		}
		return c.Wait()
	}
	for _, c := range []struct {
		want         string
		wrong, right func(m *bailey.Manager) error
	}{
		{
			"the manager is not initialised; call Initialize first",
			func(*bailey.Manager) error {
				_, err := bailey.New(bailey.Config{Binary: program}).WrapCommand("true")
				return err
			},
			func(*bailey.Manager) error {
				m := bailey.New(bailey.Config{Binary: program})
				if err := m.Initialize(); err != nil {
					return err
				}
				_, err := m.WrapCommand("true")
				return err
			},
		},
		{
			"the manager is not initialised; call Initialize first",
			func(*bailey.Manager) error { _, err := bailey.New(bailey.Config{}).Open(); return err },
			func(m *bailey.Manager) error {
				box, err := m.Open()
				if err != nil {
					return err
				}
				return box.Close()
			},
		},
		{
			"only one of settings, preset and policy can be given",
			func(*bailey.Manager) error {
				return bailey.New(bailey.Config{Preset: "offline", Policy: "{}"}).Initialize()
			},
			func(*bailey.Manager) error {
				return bailey.New(bailey.Config{Policy: `{"extends": "offline"}`}).Initialize()
			},
		},
		{
			"no command",
			func(m *bailey.Manager) error { return m.Command("").Run() },
			func(m *bailey.Manager) error { return m.Command("true").Run() },
		},
		{
			`argument "a\x00b" holds a NUL byte`,
			func(m *bailey.Manager) error { return m.Command("echo", "a\x00b").Run() },
			func(m *bailey.Manager) error { return m.Command("echo", "ab").Run() },
		},
		{
			"bailey: not started",
			func(m *bailey.Manager) error { return m.Command("true").Wait() },
			func(m *bailey.Manager) error { return wait(m.Command("true")) },
		},
		{
			"bailey: not started",
			func(m *bailey.Manager) error { return m.Command("true").Kill() },
			func(m *bailey.Manager) error {
				sleep := m.Command("sleep", "1000")
				if err := sleep.Start(); err != nil {
					return err
				}
				defer sleep.Wait()
				return sleep.Kill()
			},
		},
		{
			"bailey: already started",
			func(m *bailey.Manager) error {
				done := m.Command("true")
				if err := done.Run(); err != nil {
					return err
				}
				return done.Run()
			},
			func(m *bailey.Manager) error { return m.Command("true").Run() },
		},
		{
			"bailey: Wait was already called",
			func(m *bailey.Manager) error {
				done := m.Command("true")
				if err := wait(done); err != nil {
					return err
				}
				return done.Wait()
			},
			func(m *bailey.Manager) error { return wait(m.Command("true")) },
		},
	} {
		m := manager(t)
		if err := c.wrong(m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		if err := c.right(m); err != nil {
			t.Errorf("%s: the right way fails: %v", c.want, err)
		}
	}
}

func TestProgramThatCannotBeFoundIsNamed(t *testing.T) {
	m, program := manager(t), testenv.Binary(t, "bailey")
	t.Setenv("PATH", t.TempDir())
	if _, err := m.WrapCommand("true"); err == nil || !strings.Contains(err.Error(), "set Config.Binary") {
		t.Errorf("got %v", err)
	}
	if _, err := newManager(t, bailey.Config{Binary: program}).WrapCommand("true"); err != nil {
		t.Error(err)
	}
}
