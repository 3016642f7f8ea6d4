package trace_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/trace"
)

const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParseReadsWhatTheStandardAllows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		sent:                            sent,
		sent[:53] + "00":                sent[:53] + "00",
		"cc" + sent[2:] + "-what-comes": sent, // a later version, of which the known part counts
		"cc" + sent[2:]:                 sent,
		"":                              "",
		"ff" + sent[2:]:                 "",
		sent + "-x":                     "",
		"cc" + sent[2:] + "x":           "",
		strings.ToUpper(sent):           "",
		sent[:54]:                       "",
		sent[:53] + "0g":                "",
		"00-" + strings.Repeat("0", 32) + sent[35:]:       "",
		sent[:36] + strings.Repeat("0", 16) + sent[52:]:   "",
		strings.Replace(sent, "-00f067", "_00f067", 1):    "",
		strings.Replace(sent, "4bf92f35", "4bf92fé", 1):   "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa-01": "",
	} {
		c, ok := trace.Parse(text)
		if ok != (want != "") || ok && c.String() != want {
			t.Errorf("%q: got %s, %v, want %q", text, c, ok, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sent)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := trace.Parse(text)
		if !ok {
			return
		}
		if again, ok := trace.Parse(c.String()); !ok || again != c || trace.Read(c.Stored()) != c {
			t.Errorf("%q became %s", text, c)
		}
	})
}

func TestAContextComesBackFromTheDatabase(t *testing.T) {
	t.Parallel()
	c, _ := trace.Parse(sent)
	if got := trace.Read(c.Stored()); got != c || len(c.Stored()) != 25 {
		t.Errorf("got %s of %d bytes", got, len(c.Stored()))
	}
	if none := (trace.Context{}).Stored(); none != nil {
		t.Errorf("no context is stored as %x", none)
	}
	if got := trace.Read([]byte("short")); got.Valid() {
		t.Errorf("got %s", got)
	}
	if child := c.Child(); child.Trace != c.Trace || child.Span == c.Span || child.Flags != c.Flags || (trace.Context{}).Child().Valid() {
		t.Errorf("got the child %s", child)
	}
}

func TestATickWithoutATraceHasOneOfItsId(t *testing.T) {
	t.Parallel()
	one, other := trace.Of("tick_0a1b2c3d4e5f6g7h8i9jklmnop"), trace.Of("tick_1a1b2c3d4e5f6g7h8i9jklmnop")
	if !one.Valid() || one.Sampled() || one != trace.Of("tick_0a1b2c3d4e5f6g7h8i9jklmnop") || one.Trace == other.Trace || one.Span == other.Span {
		t.Errorf("got %s and %s", one, other)
	}
}

func TestAContextTravelsWithARequest(t *testing.T) {
	t.Parallel()
	c, _ := trace.Parse(sent)
	if got := trace.From(trace.With(t.Context(), c)); got != c {
		t.Errorf("got %s", got)
	}
	if got := trace.From(trace.With(context.Background(), trace.Context{})); got.Valid() {
		t.Errorf("got %s", got)
	}
}

// Most installations export no spans, so a nil Tracer allocates nothing: neither where a span would begin, nor for the traceparent of a
// message.
func TestOffAllocatesNothing(t *testing.T) {
	var off *trace.Tracer
	parent, _ := trace.Parse(sent)
	began, ctx := time.Now(), t.Context()
	text := make([]byte, 0, trace.TextLength)
	if n := testing.AllocsPerRun(1000, func() {
		s := off.Begin("sweep", trace.Context{}, began, trace.Facts{Tenant: 1, Ticks: 500})
		_, r := off.Request(ctx, "put", trace.Facts{Tenant: 1, Workflow: "w"})
		off.Record("push", parent, trace.Context{}, began, trace.Facts{Tenant: 1, Workflow: "w", Endpoint: "e", Attempt: 1})
		if off.On() || off.Follows(parent) || s.Context().Valid() || trace.Context.Child(trace.Context{}).Stored() != nil {
			t.Error("it is on")
		}
		s.End(false)
		r.End(true)
		text = trace.Of("tick_0a1b2c3d4e5f6g7h8i9jklmnop").AppendText(text[:0])
	}); n != 0 {
		t.Errorf("got %v allocations", n)
	}
	off.Close()
}
