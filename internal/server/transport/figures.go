package transport

import (
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// figures are what /metrics shows of requests.
type figures struct {
	registry *prometheus.Registry
	answers  *prometheus.CounterVec
	took     *prometheus.HistogramVec
	running  *prometheus.GaugeVec
}

// buckets are from a tenth of a millisecond, below which nothing is worth telling
// apart, to a minute.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newFigures(more []prometheus.Collector) *figures {
	f := &figures{
		registry: prometheus.NewRegistry(),
		answers:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bailey_http_responses_total", Help: "Answers by HTTP status."}, []string{"status"}),
		took:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bailey_request_seconds", Help: "Time of requests by method and code.", Buckets: buckets}, []string{"method", "code"}),
		running:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "bailey_requests_running", Help: "Requests under way, streams included, by method."}, []string{"method"}),
	}
	f.registry.MustRegister(f.answers, f.took, f.running,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f.registry.MustRegister(more...)
	return f
}

func (f *figures) answered(status int) {
	f.answers.WithLabelValues(strconv.Itoa(status)).Inc()
}

func (f *figures) finished(procedure string, err *connect.Error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = err.Code().String()
	}
	f.took.WithLabelValues(procedure, code).Observe(took.Seconds())
}

func (f *figures) handler() http.Handler {
	return promhttp.HandlerFor(f.registry, promhttp.HandlerOpts{})
}
