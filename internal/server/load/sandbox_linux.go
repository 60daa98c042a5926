package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// mark is a label of everything that a run makes.
const mark = "bailey-load"

func (m *run) request(codebase string) *baileyv1.CreateSandboxRequest {
	r := &baileyv1.CreateSandboxRequest{Labels: map[string]string{mark: "1"}}
	if codebase != "" {
		r.Source = &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: codebase}
	}
	return r
}

// make makes sandboxes that run.
func (m *run) make(ctx context.Context, n int, codebase string) ([]string, error) {
	const most = 100
	var ids []string
	for len(ids) < n {
		res, err := m.boxes.BatchCreateSandboxes(ctx, &baileyv1.BatchCreateSandboxesRequest{Template: m.request(codebase), Count: int32(min(n-len(ids), most))}) //nolint:gosec // at most 100
		if err != nil {
			return nil, err
		}
		for _, f := range res.GetFailures() {
			return nil, fmt.Errorf("%s; %s", f.GetMessage(), f.GetRemedy())
		}
		for _, sb := range res.GetSandboxes() {
			ids = append(ids, sb.GetId())
		}
	}
	return ids, nil
}

func (m *run) destroy(ctx context.Context, id string) error {
	_, err := m.boxes.DestroySandbox(ctx, &baileyv1.DestroySandboxRequest{SandboxId: id})
	return err
}

// destroyers are clients that destroy at once.
const destroyers = 8

func (m *run) destroyAll(ctx context.Context, ids []string) error {
	_, _, err := times(ctx, destroyers, len(ids), func(ctx context.Context, i int) error { return m.destroy(ctx, ids[i]) })
	return err
}

// cleanUp removes what a run that failed has left behind.
func (m *run) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		page, err := m.boxes.ListSandboxes(ctx, &baileyv1.ListSandboxesRequest{PageSize: 1000, Labels: []string{mark}})
		if err != nil {
			return err
		}
		if len(page.GetSandboxes()) == 0 {
			break
		}
		var ids []string
		for _, sb := range page.GetSandboxes() {
			ids = append(ids, sb.GetId())
		}
		if err := m.destroyAll(ctx, ids); err != nil {
			return err
		}
	}
	page, err := m.codes.ListCodebases(ctx, &baileyv1.ListCodebasesRequest{Labels: []string{mark}})
	for _, c := range page.GetCodebases() {
		_, failure := m.codes.DeleteCodebase(ctx, &baileyv1.DeleteCodebaseRequest{CodebaseId: c.GetId()})
		err = errors.Join(err, failure)
	}
	return err
}

// sandboxes measures making and destroying them, one after the other and many at
// once.
func (m *run) sandboxes(ctx context.Context) error {
	serial := 0
	err := m.lives(ctx, createStart, func() (*baileyv1.CreateSandboxRequest, error) {
		serial++
		r := m.request(m.codebase)
		r.Env = map[string]string{"SERIAL": strconv.Itoa(serial)} // none like it was made before
		return r, nil
	})
	if err != nil {
		return err
	}
	if err := m.pooled(ctx); err != nil {
		return err
	}
	start := time.Now()
	ids, err := m.make(ctx, m.batch, m.codebase)
	if err != nil {
		return err
	}
	m.report.add(fmt.Sprintf("batch of %d sandboxes", m.batch), time.Since(start).Seconds(), "s")
	return m.destroyAll(ctx, ids)
}

// lives measures how sandboxes are made and destroyed, one after the other.
func (m *run) lives(ctx context.Context, name string, next func() (*baileyv1.CreateSandboxRequest, error)) error {
	var made, gone []time.Duration
	var making, ending time.Duration
	for range m.creates {
		request, err := next()
		if err != nil {
			return err
		}
		start := time.Now()
		sb, err := m.boxes.CreateSandbox(ctx, request)
		if err != nil {
			return err
		}
		made = append(made, time.Since(start))
		making += made[len(made)-1]
		if err := m.exec(ctx, sb.GetId()); err != nil {
			return err
		}
		start = time.Now()
		if err := m.destroy(ctx, sb.GetId()); err != nil {
			return err
		}
		gone = append(gone, time.Since(start))
		ending += gone[len(gone)-1]
	}
	m.report.Latencies = append(m.report.Latencies, latency(name, 1, made, making))
	if name == createStart {
		m.report.Latencies = append(m.report.Latencies, latency(destroy, 1, gone, ending))
	}
	return nil
}

// errNoPool says that a server makes nothing before it is asked for.
var errNoPool = errors.New("the server has no pool")

// pooled measures sandboxes that were made before, if the server does that.
func (m *run) pooled(ctx context.Context) error {
	switch err := m.fillPool(ctx); {
	case errors.Is(err, errNoPool):
		return nil
	case err != nil:
		return err
	}
	return m.lives(ctx, createPooled, func() (*baileyv1.CreateSandboxRequest, error) {
		return m.request(m.codebase), m.awaitPool(ctx)
	})
}

// fillPool asks for as many equal sandboxes as make a server prepare another.
func (m *run) fillPool(ctx context.Context) error {
	for range 2 {
		ids, err := m.make(ctx, 1, m.codebase)
		if err == nil {
			err = m.destroyAll(ctx, ids)
		}
		if err != nil {
			return err
		}
	}
	return m.awaitPool(ctx)
}

// awaitPool asks the server until it has a sandbox that waits.
func (m *run) awaitPool(ctx context.Context) error {
	const tries = 2000
	for range tries {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+"/metrics", nil)
		if err != nil {
			return err
		}
		data, err := m.do(r)
		if err != nil {
			return err
		}
		if metric(string(data), "bailey_pool_sandboxes") > 0 {
			return nil
		}
	}
	return errNoPool
}

// idle measures what sandboxes cost that do nothing.
func (m *run) idle(ctx context.Context) error {
	before := kernelMemory()
	ids, err := m.make(ctx, m.Idle, m.codebase)
	if err != nil {
		return err
	}
	perBox := float64(kernelMemory()-before) / float64(m.Idle)
	_, answered, err := times(ctx, destroyers, len(ids), func(ctx context.Context, i int) error { return m.exec(ctx, ids[i]) })
	if err != nil {
		return err
	}
	m.report.add(idleCount, float64(len(ids)), "")
	m.report.add(idleAnswered, answered.Seconds(), "s")
	m.report.add(idleKernel, perBox, "KB")
	if m.processes.server != 0 {
		mean, n := m.processes.inits()
		if n < len(ids) {
			return fmt.Errorf("of %d sandboxes only %d have a process", len(ids), n)
		}
		m.report.add(idleInit, float64(mean), "KB")
		m.report.add(idleServer, float64(pss(m.processes.server)+pss(m.processes.keeper))/1024, "MB")
	}
	start := time.Now()
	err = m.destroyAll(ctx, ids)
	m.report.add(idleDestroy, time.Since(start).Seconds(), "s")
	return err
}

// soakers are clients of the soak.
const soakers = 4

// soak makes, uses and destroys sandboxes, and says by how much the server has
// grown meanwhile. A first part fills what is kept anyway, and does not count.
func (m *run) soak(ctx context.Context) error {
	cycle := func(ctx context.Context, _ int) error {
		sb, err := m.boxes.CreateSandbox(ctx, m.request(m.codebase))
		if err != nil {
			return err
		}
		if err := m.exec(ctx, sb.GetId()); err != nil {
			return err
		}
		return m.destroy(ctx, sb.GetId())
	}
	if _, _, err := times(ctx, soakers, m.Cycles/5+1, cycle); err != nil {
		return err
	}
	before, err := m.size(ctx)
	if err != nil {
		return err
	}
	_, elapsed, err := times(ctx, soakers, m.Cycles, cycle)
	if err != nil {
		return err
	}
	after, err := m.size(ctx)
	if err != nil {
		return err
	}
	m.report.add(soakCycles, float64(m.Cycles), "")
	m.report.add("cycles in a second", float64(m.Cycles)/elapsed.Seconds(), "/s")
	for i, f := range after {
		m.report.add("growth of "+f.Name, f.Value-before[i].Value, f.Unit)
	}
	return nil
}
