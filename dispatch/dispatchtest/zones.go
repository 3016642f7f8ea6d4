package dispatchtest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/calendars"
)

// AdoptAfter2025b stores tzdata 2025b and the newer one in force, which every process knows by now. It returns the older one.
func (h *Carillon) AdoptAfter2025b() *calendar.Zones {
	h.T.Helper()
	_, here, _, _ := runtime.Caller(0) // a test's own folder is not always as deep
	archive, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../calendar/testdata/zones-2025b.tar.gz"))
	if err != nil {
		h.T.Fatal(err)
	}
	old, err := calendar.ReadZones(bytes.NewReader(archive))
	if err != nil {
		h.T.Fatal(err)
	}
	h.Exec(`INSERT INTO tzdata (version, archive) VALUES ('2025b', $1)`, archive)
	if err := calendars.AdoptZones(h.T.Context(), h.Pool, calendar.EmbeddedArchive()); err != nil {
		h.T.Fatal(err)
	}
	h.Exec(`UPDATE tzdata SET added_at = added_at - interval '1 hour'`)
	return old
}
