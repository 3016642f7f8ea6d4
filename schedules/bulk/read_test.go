package bulk_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// Blank lines cost little to send with gzip, so they count like other lines.
func TestBlankLinesAreNotReadForEver(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(append([]byte(schedulestest.DailyLine("a")), bytes.Repeat([]byte("\n"), 2_000_000)...)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got := e.Ask("POST", schedulestest.BulkPath, packed.String(), "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip")
	if !strings.Contains(got.Body, `"line":1000001`) || !strings.Contains(got.Body, "too_many_lines") || !strings.Contains(got.Body, `"inserted":1`) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

func TestBulkTimesLinesByTheirKeys(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("a", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.PutSubject("b", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	lines := []string{
		`{"workflow":"w","key":"a","spec":{"timezone":"@subject","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"b","spec":{"timezone":"@subject","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"c","spec":{"timezone":"@subject","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"d","spec":{"timezone":"Asia/Tokyo","cron":["0 8 * * *"]}}`,
	}
	send := func() (results []bulk.Result) {
		t.Helper()
		_, err := h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(strings.Join(lines, "\n"))), func(batch []bulk.Result) error {
			results = append(results, batch...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	got := send()
	for i, want := range []string{schedules.Inserted, schedules.Inserted, schedules.Failed, schedules.Inserted} {
		if got[i].Result != want {
			t.Errorf("line %d: got %+v", i+1, got[i])
		}
	}
	if f := got[2].Error; f == nil || f.Code != "no_subject_zone" || f.Errors[0].Pointer != "/spec/timezone" {
		t.Errorf("got %+v", f)
	}
	if a, b, d := h.Get("a"), h.Get("b"), h.Get("d"); !a.NextAt.Equal(*d.NextAt) || !b.NextAt.Equal(h.NextOf("Europe/Berlin", "0 8 * * *")) {
		t.Errorf("got %s, %s, %s", a.NextAt, b.NextAt, d.NextAt)
	}
	if got := send(); got[0].Result != schedules.Unchanged || got[1].Result != schedules.Unchanged {
		t.Errorf("got %+v", got)
	}
	lines[1] = strings.Replace(lines[1], "0 8", "0 9", 1)
	lines[3] = strings.Replace(lines[3], "Asia/Tokyo", "@subject", 1)
	h.PutSubject("d", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	if got := send(); got[1].Result != schedules.Updated || got[3].Result != schedules.Updated {
		t.Errorf("got %+v", got)
	}
	if b, d := h.Get("b"), h.Get("d"); !b.NextAt.Equal(h.NextOf("Europe/Berlin", "0 9 * * *")) || !d.NextAt.Equal(h.NextOf("Europe/Berlin", "0 8 * * *")) {
		t.Errorf("got %s, %s", b.NextAt, d.NextAt)
	}
}
