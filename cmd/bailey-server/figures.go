package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bailey-sandbox/bailey/internal/store"
)

// figures are what the store knows about the whole server, counted when they are
// asked for.
type figures struct {
	store store.Store
	log   *slog.Logger
}

var _ prometheus.Collector = (*figures)(nil)

var (
	sandboxesFigure = prometheus.NewDesc("bailey_sandboxes", "Sandboxes by state.", []string{"state"}, nil)
	thingsFigure    = prometheus.NewDesc("bailey_objects", "What the server keeps, by kind.", []string{"kind"}, nil)
)

// countTime bounds how long a request for figures waits for the store.
const countTime = 5 * time.Second

// Describe implements prometheus.Collector.
func (f *figures) Describe(to chan<- *prometheus.Desc) {
	to <- sandboxesFigure
	to <- thingsFigure
}

// Collect implements prometheus.Collector. What cannot be counted is left out.
func (f *figures) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	count := func(figure *prometheus.Desc, label string, q store.Query) {
		n, err := f.store.Count(ctx, q)
		if err != nil {
			f.log.Error("counting for /metrics", "what", label, "error", err)
			return
		}
		to <- prometheus.MustNewConstMetric(figure, prometheus.GaugeValue, float64(n), label)
	}
	for _, state := range []string{"created", "running", "paused", "stopped", "failed"} {
		count(sandboxesFigure, state, store.Query{Kind: store.Sandboxes, States: []string{state}})
	}
	for _, kind := range []store.Kind{store.Codebases, store.Snapshots, store.Sessions, store.Tokens} {
		count(thingsFigure, string(kind), store.Query{Kind: kind})
	}
}
