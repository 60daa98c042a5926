package load

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// fileClients read and write at once where many small requests are counted.
const fileClients = 8

// archive has files of 1 KB, a hundred to a directory.
func archive(files int) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	content := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for i := range files {
		// Writing to memory does not fail.
		_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%03d/f%05d", i/100, i), Mode: 0o644, Size: int64(len(content))})
		_, _ = w.Write(content)
	}
	_ = w.Close()
	return b.Bytes()
}

// upload makes a codebase, and says how long its files took to arrive.
func (m *run) upload(ctx context.Context, files int) (id string, took time.Duration, err error) {
	c, err := m.codes.CreateCodebase(ctx, &baileyv1.CreateCodebaseRequest{Name: fmt.Sprintf("load-%d", files), Labels: map[string]string{mark: "1"}})
	if err != nil {
		return "", 0, err
	}
	data := archive(files)
	start := time.Now()
	var answer struct{ FileCount string }
	err = m.post(ctx, "/v1/codebases/"+c.GetId()+"/archive", "application/x-tar", bytes.NewReader(data), &answer)
	return c.GetId(), time.Since(start), err
}

// codebases measures uploads, and keeps one codebase for the other parts.
func (m *run) codebases(ctx context.Context) error {
	id, took, err := m.upload(ctx, m.sizes.upload)
	if err != nil {
		return err
	}
	m.report.add(fmt.Sprintf("upload of %d files", m.sizes.upload), took.Seconds(), "s")
	if _, err := m.codes.DeleteCodebase(ctx, &baileyv1.DeleteCodebaseRequest{CodebaseId: id}); err != nil {
		return err
	}
	m.codebase, took, err = m.upload(ctx, m.sizes.files)
	m.report.add(fmt.Sprintf("upload of %d files", m.sizes.files), took.Seconds(), "s")
	return err
}

// files measures reading and writing over the API.
func (m *run) files(ctx context.Context) error {
	ids, err := m.make(ctx, 1, m.codebase)
	if err != nil {
		return err
	}
	id := ids[0]
	for name, size := range map[string]int{"small": 1 << 10, "large": 1 << 20} {
		content := make([]byte, size)
		_, _ = rand.Read(content) // nothing between makes it smaller
		if err := m.write(ctx, id, name, content); err != nil {
			return err
		}
	}
	small := make([]byte, 1<<10)
	for _, f := range []struct {
		name    string
		clients int
		do      operation
	}{
		{read1K, 1, func(ctx context.Context, _ int) error { return m.read(ctx, id, "small", 1<<10) }},
		{read1M, 1, func(ctx context.Context, _ int) error { return m.read(ctx, id, "large", 1<<20) }},
		{write1K, 1, func(ctx context.Context, _ int) error { return m.write(ctx, id, "written", small) }},
		{read1K, fileClients, func(ctx context.Context, _ int) error { return m.read(ctx, id, "small", 1<<10) }},
		{write1K, fileClients, func(ctx context.Context, i int) error { return m.write(ctx, id, fmt.Sprintf("written-%d", i), small) }},
	} {
		samples, elapsed, err := drive(ctx, f.clients, m.reads, f.do)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		m.report.Latencies = append(m.report.Latencies, latency(f.name, f.clients, samples, elapsed))
	}
	return m.destroyAll(ctx, ids)
}

func (m *run) read(ctx context.Context, id, path string, size int) error {
	res, err := m.trees.ReadFile(ctx, &baileyv1.ReadFileRequest{SandboxId: id, Path: path})
	if err == nil && len(res.GetContent()) != size {
		err = fmt.Errorf("%s has %d bytes, not %d", path, len(res.GetContent()), size)
	}
	return err
}

func (m *run) write(ctx context.Context, id, path string, content []byte) error {
	_, err := m.trees.WriteFile(ctx, &baileyv1.WriteFileRequest{SandboxId: id, Path: path, Content: content})
	return err
}
