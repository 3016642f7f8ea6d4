package progress_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/progress"
)

func TestABarShowsTheCountAndIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		bar := progress.New(&w, true, progress.Options{What: "import", Unit: "lines", Total: 1000, Width: 80})
		time.Sleep(time.Second) // the bubble's own clock: 610 lines in a second
		bar.Set(610, "paused")
		bar.Aside(func() { w.WriteString("line 7 is bad\n") })
		time.Sleep(time.Second)
		bar.Add(10)
		bar.Close()
		text := w.String()
		for _, want := range []string{"import", "paused", "610/1000", "610 lines/s", "620/1000", "\rline 7 is bad\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
		if !strings.HasSuffix(text, "\x1b[2K\r") {
			t.Errorf("the bar remains: %q", text)
		}
	})
}

func TestNoBarWithoutATerminal(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	bar := progress.New(&w, false, progress.Options{Total: 10})
	bar.Set(3, "x")
	bar.Add(1)
	bar.Aside(func() {})
	bar.Close()
	if w.Len() > 0 {
		t.Errorf("got %q", w.String())
	}
}
