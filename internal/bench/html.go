package bench

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// HTML writes a page that shows a report, and how its workloads fared in earlier
// ones. It needs nothing but itself: no script, no style sheet, no picture.
func (r *Report) HTML(w io.Writer, earlier []*Report) error {
	history := append(slices.Clone(earlier), r)
	slices.SortStableFunc(history, func(a, b *Report) int { return strings.Compare(a.Time, b.Time) })
	page := struct {
		*Report
		Facts     [][2]string
		Plots     []plot
		Launch    template.HTML
		Histories []plot
	}{Report: r, Facts: r.facts(), Launch: r.launchBar(), Histories: histories(history)}
	for i := range r.Workloads {
		page.Plots = append(page.Plots, r.Workloads[i].plot())
	}
	return pageTemplate.Execute(w, page)
}

type plot struct {
	Title  string
	Text   string
	SVG    template.HTML
	Absent map[string]string
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Bailey benchmark {{.Time}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h2 { margin: 2.5rem 0 .5rem } figure { margin: 1rem 0 } figcaption { color: #555 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } td:first-child { color: #555; padding-right: 1rem }
</style>
<h1>Benchmark of {{.Time}}</h1>
<table>{{range .Facts}}<tr><td>{{index . 0}}</td><td>{{index . 1}}</td></tr>{{end}}</table>
<h2>Workloads</h2>
<p>Every dot is one run; the line is the median. The scale is logarithmic. On the right, the median, and the median of the ratios to
unsandboxed in the same round.</p>
{{range .Plots}}<figure><figcaption><strong>{{.Title}}</strong> {{.Text}}</figcaption>{{.SVG}}{{if .Absent}}<figcaption>Not measured: {{range $name, $why := .Absent}}{{$name}} ({{$why}}) {{end}}</figcaption>{{end}}</figure>{{end}}
{{if .Sandboxes}}<h2>What each sandbox held</h2>
<p>As it was tried from inside, before the run.</p>
<table>{{range .Sandboxes}}<tr><td>{{.Name}}</td><td>{{range $what, $came := .Tried}}{{$what}}: {{$came}}. {{end}}<br><code>{{.Command}}</code></td></tr>{{end}}</table>{{end}}
{{if .Launch}}<h2>What a launch is made of</h2><figure>{{.Launch}}</figure>{{end}}
<h2>Over commits</h2>
<p>Median overhead of each run in this directory, in ratio to unsandboxed, in the order of time.</p>
{{range .Histories}}<figure><figcaption><strong>{{.Title}}</strong></figcaption>{{.SVG}}</figure>{{end}}
</html>
`))

const (
	plotWidth  = 900.0
	plotLeft   = 130.0
	plotRight  = 140.0
	rowHeight  = 26.0
	labelStart = `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`
)

// colours tell variants and parts apart, also for who does not see all colours.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#666666"}

func colour(i int) string { return colours[i%len(colours)] }

// svg collects the elements of a drawing.
type svg struct {
	b      strings.Builder
	height float64
}

func (s *svg) label(x, y float64, anchor, text string) {
	fmt.Fprintf(&s.b, labelStart, x, y, anchor, template.HTMLEscapeString(text))
}

func (s *svg) done() template.HTML {
	// Every text in it went through label, or is a number.
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img">%s</svg>`, plotWidth, s.height, s.b.String()))
}

// axis maps values to places, by their logarithms.
type axis struct{ low, high float64 }

func axisOf(values []float64) axis {
	a := axis{slices.Min(values) * 0.95, slices.Max(values) * 1.05}
	return a
}

func (a axis) at(v float64) float64 {
	share := (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	return plotLeft + share*(plotWidth-plotLeft-plotRight)
}

// plot draws every sample of a workload.
func (w *Workload) plot() plot {
	p := plot{Title: w.Name, Text: w.Command, Absent: w.Absent}
	if w.Missing != "" {
		p.Text = w.Missing
		return p
	}
	var all []float64
	for _, v := range w.Variants {
		all = append(all, v.Seconds...)
	}
	a, s := axisOf(all), svg{height: rowHeight*float64(len(w.Variants)) + 8}
	for i, v := range w.ordered() {
		y := rowHeight*float64(i) + rowHeight/2 + 4
		s.label(plotLeft-8, y+4, "end", v.Name)
		for _, x := range v.Seconds {
			fmt.Fprintf(&s.b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s" fill-opacity=".35"/>`, a.at(x), y, colour(i))
		}
		m := Median(v.Seconds)
		fmt.Fprintf(&s.b, `<path d="M%.1f %.1fv%.1f" stroke="%s" stroke-width="2"/>`, a.at(m), y-9, 18.0, colour(i))
		text := fmt.Sprintf("%.2f ms", 1000*m)
		if factor := w.factor(v.Name, Unsandboxed); factor != "" {
			text += ", " + factor + "x"
		}
		s.label(plotWidth-plotRight+8, y+4, "start", text)
	}
	p.SVG = s.done()
	return p
}

// launchBar draws the parts of a launch beside each other, and names them below.
func (r *Report) launchBar() template.HTML {
	launches := typical(r.LaunchesOf(Bailey))
	if len(launches) == 0 {
		return ""
	}
	all, sum := parts(launches), 0.0
	for _, p := range all {
		sum += mean(p.seconds)
	}
	s := svg{height: 50 + 18*float64(len(all))}
	x := 0.0
	for i, p := range all {
		width := mean(p.seconds) / sum * plotWidth
		fmt.Fprintf(&s.b, `<rect x="%.2f" y="0" width="%.2f" height="30" fill="%s"/>`, x, width, colour(i))
		y := 52 + 18*float64(i)
		fmt.Fprintf(&s.b, `<rect x="0" y="%.1f" width="12" height="12" fill="%s"/>`, y-10, colour(i))
		s.label(20, y, "start", fmt.Sprintf("%s: %.0f µs", p.name, 1e6*mean(p.seconds)))
		x += width
	}
	return s.done()
}

// histories draws, for each workload of the last report, the overhead of Bailey
// in all of them.
func histories(reports []*Report) []plot {
	var plots []plot
	last := reports[len(reports)-1]
	for i := range last.Workloads {
		name := last.Workloads[i].Name
		var values []float64
		var labels []string
		for _, r := range reports {
			w := r.workload(name)
			if w == nil || w.Factors(Bailey, Unsandboxed) == nil {
				continue
			}
			values = append(values, Median(w.Factors(Bailey, Unsandboxed)))
			labels = append(labels, r.Commit)
		}
		if len(values) > 0 {
			plots = append(plots, plot{Title: name, SVG: line(values, labels)})
		}
	}
	return plots
}

// line draws values in their order, the first and the last with a label.
func line(values []float64, labels []string) template.HTML {
	s := svg{height: 110}
	high := slices.Max(values) * 1.1
	x := func(i int) float64 {
		if len(values) == 1 {
			return plotWidth / 2
		}
		return 20 + float64(i)/float64(len(values)-1)*(plotWidth-140)
	}
	y := func(v float64) float64 { return 80 - v/high*70 }
	var path strings.Builder
	for i, v := range values {
		fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(i), y(v))
		fmt.Fprintf(&s.b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s %.2f</title></circle>`, x(i), y(v), colour(0), template.HTMLEscapeString(labels[i]), v)
	}
	fmt.Fprintf(&s.b, `<path d="%s" fill="none" stroke="%s"/><path d="M20 80H%.0f" stroke="#bbb"/>`, path.String(), colour(0), plotWidth-120)
	end := len(values) - 1
	s.label(x(end), 100, "end", labels[end])
	if end > 0 {
		s.label(x(0), 100, "start", labels[0])
	}
	s.label(x(end)+8, y(values[end])+4, "start", fmt.Sprintf("%.2fx", values[end]))
	return s.done()
}
