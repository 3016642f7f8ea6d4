package calendar

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed tzdata/zoneinfo.tar.gz
var embedded []byte

// maxArchive is the maximum size of a decompressed archive of zones, in bytes.
const maxArchive = 16 << 20

// Zones is one version of the tz database. It is safe for concurrent use.
type Zones struct {
	version string
	files   map[string][]byte
	links   map[string]string

	mu     sync.RWMutex
	tables map[string]*zone
}

// notZones lists the names in a tz database that are not accepted: abbreviations, offsets, and files that are not zones.
var notZones = []string{"EST", "MST", "HST", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "CET", "MET", "EET", "WET", "UCT",
	"GMT+0", "GMT-0", "GMT0", "Factory", "localtime", "posixrules"}

var readEmbedded = sync.OnceValue(func() *Zones {
	z, err := ReadZones(bytes.NewReader(embedded))
	if err != nil {
		panic("calendar: embedded zones: " + err.Error())
	}
	return z
})

var inForce atomic.Pointer[Zones]

// EmbeddedArchive returns the archive of Embedded, in the format of ReadZones.
func EmbeddedArchive() []byte { return embedded }

// Embedded returns the tz database in the program.
func Embedded() *Zones { return readEmbedded() }

// InForce returns the database for a Context without one: the database of the last Use, or Embedded.
func InForce() *Zones {
	if z := inForce.Load(); z != nil {
		return z
	}
	return Embedded()
}

// Use sets the database for later compilations. nil restores the embedded one. Existing timings keep their database.
func Use(z *Zones) { inForce.Store(z) }

// ReadZones reads an archive in the format of tzdata/remake.sh: a gzipped tar of TZif files and a file +VERSION. It checks each file.
func ReadZones(r io.Reader) (*Zones, error) {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read zones: %w", err)
	}
	z := &Zones{files: map[string][]byte{}, links: map[string]string{}, tables: map[string]*zone{}}
	archive := tar.NewReader(io.LimitReader(unzipped, maxArchive))
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read zones: %w", err)
		}
		if err := z.add(h, archive); err != nil {
			return nil, fmt.Errorf("read zone %s: %w", h.Name, err)
		}
	}
	if z.version == "" || z.files["Etc/UTC"] == nil && z.links["Etc/UTC"] == "" {
		return nil, errors.New("read zones: not an archive of zones with a version")
	}
	return z, nil
}

func (z *Zones) add(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	if h.Typeflag == tar.TypeLink {
		z.links[h.Name] = h.Linkname
		return nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if h.Name == "+VERSION" {
		z.version = strings.TrimSpace(string(data))
		return nil
	}
	if _, _, err := readTZif(data); err != nil {
		return err
	}
	z.files[h.Name] = data
	return nil
}

// Version returns the database's version, such as 2026f.
func (z *Zones) Version() string { return z.version }

// Has reports whether there is a zone of that name. It compares names byte for byte. Abbreviations such as EST are not zones.
func (z *Zones) Has(name string) bool { return z.data(name) != nil }

// Names returns the sorted names of all zones.
func (z *Zones) Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(z.files)), maps.Keys(z.links))
	names = slices.DeleteFunc(names, func(n string) bool { return !z.Has(n) })
	slices.Sort(names)
	return names
}

// Location returns the zone as a time.Location with this database's data, or nil.
func (z *Zones) Location(name string) *time.Location {
	t := z.zone(name)
	if t == nil {
		return nil
	}
	return t.location()
}

func (z *Zones) data(name string) []byte {
	if slices.Contains(notZones, name) {
		return nil
	}
	if to, ok := z.links[name]; ok {
		return z.files[to]
	}
	return z.files[name]
}

// zone returns the table of a zone, or nil. It builds the table once.
func (z *Zones) zone(name string) *zone {
	z.mu.RLock()
	t := z.tables[name]
	z.mu.RUnlock()
	if t != nil {
		return t
	}
	data := z.data(name)
	if data == nil {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if t := z.tables[name]; t != nil {
		return t
	}
	t, err := newZone(name, data)
	if err != nil {
		return nil // unreachable: ReadZones has checked the data
	}
	z.tables[name] = t
	return t
}

// Change is a zone that differs between two databases. From is the first compared instant with a difference. Gone means that the other
// database lacks the zone.
type Change struct {
	Zone string
	From time.Time
	Gone bool
}

// Diff returns the zones of z that differ in another database since 2000, by name. Earlier differences change no schedule.
func (z *Zones) Diff(other *Zones) []Change {
	return z.DiffSince(other, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
}

// DiffSince returns the zones of z that differ in another database between since and 2150, by name. From of a change is the first such
// instant at or after since.
func (z *Zones) DiffSince(other *Zones, since time.Time) []Change {
	var changes []Change
	for _, name := range z.Names() {
		if !other.Has(name) {
			changes = append(changes, Change{Zone: name, From: since.UTC(), Gone: true})
			continue
		}
		if bytes.Equal(z.data(name), other.data(name)) {
			continue
		}
		if at, differ := z.zone(name).differ(other.zone(name), since.Unix()); differ {
			changes = append(changes, Change{Zone: name, From: time.Unix(at, 0).UTC()})
		}
	}
	return changes
}

// differ returns the first instant at or after at with different offsets in the two tables.
func (z *zone) differ(other *zone, at int64) (int64, bool) {
	for {
		i, j := z.find(at), other.find(at)
		if z.offsets[i] != other.offsets[j] {
			return at, true
		}
		at = min(z.end(i), other.end(j))
		if at >= farAhead {
			return 0, false
		}
	}
}
