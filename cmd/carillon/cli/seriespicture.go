package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// seriesLine is a line of a series: its name, and the value of a bucket.
type seriesLine struct {
	name   string
	of     func(bucket output.Object) float64
	millis bool // the greatest value counts, not the sum
}

// countLine returns the line of a count of a bucket.
func countLine(name string) seriesLine {
	return seriesLine{name: name, of: func(b output.Object) float64 { return float64(number(b.At(name))) }}
}

// lateLine returns the line of a percentile of lateness.
func lateLine(name string) seriesLine {
	return seriesLine{name: "late " + name, millis: true, of: func(b output.Object) float64 {
		n, _ := b.At("lateness_ms." + name).Value().(json.Number)
		value, _ := n.Float64() // null is 0
		return value
	}}
}

// skippedOf returns how many ticks of a bucket were skipped, for any reason.
func skippedOf(bucket output.Object) (n float64) {
	reasons, _ := bucket.At("skipped").Value().(map[string]any)
	for reason := range reasons {
		n += float64(number(bucket.At("skipped." + reason)))
	}
	return n
}

// seriesLines are the lines of a series. The first two are always drawn, the others only if they have a value above zero.
var seriesLines = []seriesLine{
	countLine("due"), countLine("fired"), countLine("succeeded"), countLine("failed"), {name: "skipped", of: skippedOf}, countLine("cancelled"),
	countLine("retried"), countLine("missed"), lateLine("p50"), lateLine("p99"),
}

// drawSeries prints a sparkline for each count of the buckets.
func drawSeries(ctx context.Context, s *command.Session, r api.Request) error {
	_, o, err := fetch(ctx, s, r)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.Out.W, seriesText(ctx, s, o))
	return err
}

// seriesText returns a sparkline for each count of the buckets of a series.
func seriesText(ctx context.Context, s *command.Session, o output.Object) string {
	var out strings.Builder
	buckets := o.At("buckets").Items()
	fmt.Fprintf(&out, "%s to %s, in steps of %s\n", moment(ctx, s, "UTC", o.At("from").String()), moment(ctx, s, "UTC", o.At("to").String()), o.At("step"))
	for i, line := range seriesLines {
		values, sum, most := make([]float64, len(buckets)), 0.0, 0.0
		for at, b := range buckets {
			values[at] = line.of(b)
			sum, most = sum+values[at], max(most, values[at])
		}
		if sum == 0 && i > 1 {
			continue
		}
		text := draw.Count(int64(sum)) + ", at most " + draw.Count(int64(most)) + " in a step"
		if line.millis {
			text = "at most " + output.Milliseconds(int64(most))
		}
		spark := draw.Spark(fewer(values, max(10, s.Out.Width-45)))
		switch line.name {
		case "failed", "missed":
			spark = screen(s).Bad(spark)
		case "skipped", "retried", "cancelled":
			spark = screen(s).Warn(spark)
		}
		fmt.Fprintf(&out, "  %-10s %s  %s\n", line.name, spark, text)
	}
	return out.String()
}

// fewer returns at most n values: the greatest of each part.
func fewer(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	parts := make([]float64, n)
	for i, v := range values {
		at := i * n / len(values)
		parts[at] = max(parts[at], v)
	}
	return parts
}
