package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// report is the result of a scenario.
type report struct {
	name     string
	figures  figures
	promises []promise
}

// figures keep the order in which they were noted.
type figures []figure

type figure struct {
	name  string
	value float64
}

// promise is a number with an upper or a lower limit.
type promise struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Holds bool    `json:"holds"`
	least bool
}

func (r *report) figure(name string, value float64) {
	r.figures = append(r.figures, figure{name, rounded(value)})
}

// atMost notes the promise that value is at most limit.
func (r *report) atMost(name string, value, limit float64) {
	r.promises = append(r.promises, promise{name, rounded(value), limit, value <= limit, false})
}

// atLeast notes the promise that value is at least limit.
func (r *report) atLeast(name string, value, limit float64) {
	r.promises = append(r.promises, promise{name, rounded(value), limit, value >= limit, true})
}

func (r *report) holds() bool {
	return !slices.ContainsFunc(r.promises, func(p promise) bool { return !p.Holds })
}

// write writes the report as a table, or as the JSON object that the contract describes.
func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Name     string    `json:"name"`
			Figures  figures   `json:"figures"`
			Promises []promise `json:"promises"`
			Holds    bool      `json:"holds"`
		}{r.name, r.figures, r.promises, r.holds()})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t\n", r.name)
	for _, f := range r.figures {
		fmt.Fprintf(t, "  %s\t%s\n", f.name, number(f.value))
	}
	fmt.Fprint(t, "promise\tvalue\tlimit\t\n")
	for _, p := range r.promises {
		verdict := "holds"
		if !p.Holds {
			verdict = "BROKEN"
		}
		bound := "at most"
		if p.least {
			bound = "at least"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s %s\t%s\n", p.Name, number(p.Value), bound, number(p.Limit), verdict)
	}
	return t.Flush()
}

// MarshalJSON writes the figures as one object.
func (f figures) MarshalJSON() ([]byte, error) {
	object := make(map[string]float64, len(f))
	for _, one := range f {
		object[one.name] = one.value
	}
	return json.Marshal(object)
}

func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

func number(v float64) string { return fmt.Sprintf("%.10g", v) }

// percentile returns the value that a part p of the values do not exceed; 0 of none. It sorts them.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(p*float64(len(values))))-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
