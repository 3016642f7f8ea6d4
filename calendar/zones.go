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

// maxArchive bounds what an archive of zones may unpack to, in bytes.
const maxArchive = 16 << 20

// Zones is one version of the tz database. It may be used by several goroutines at once.
type Zones struct {
	version string
	files   map[string][]byte
	links   map[string]string

	mu     sync.RWMutex
	tables map[string]*zone
}

// notZones are names of the tz database that are abbreviations or offsets, and those of files that are no zones.
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

// EmbeddedArchive is what ReadZones makes Embedded of.
func EmbeddedArchive() []byte { return embedded }

// Embedded is the tz database that the program carries.
func Embedded() *Zones { return readEmbedded() }

// InForce is the database that timings are compiled with when their Context names none: what Use set, else Embedded.
func InForce() *Zones {
	if z := inForce.Load(); z != nil {
		return z
	}
	return Embedded()
}

// Use puts a database in force for what is compiled from now on; nil brings back the embedded one. Timings keep the one they
// were compiled with.
func Use(z *Zones) { inForce.Store(z) }

// ReadZones reads an archive as tzdata/remake.sh makes it: a gzipped tar of TZif files and a file +VERSION. Each file is checked.
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

// Version is the database's version, such as 2026f.
func (z *Zones) Version() string { return z.version }

// Has says whether the name is that of a zone. Names are compared byte for byte; abbreviations such as EST are none.
func (z *Zones) Has(name string) bool { return z.data(name) != nil }

// Names are the names of all zones, sorted.
func (z *Zones) Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(z.files)), maps.Keys(z.links))
	names = slices.DeleteFunc(names, func(n string) bool { return !z.Has(n) })
	slices.Sort(names)
	return names
}

// Location is the zone as the standard library knows it, by this database's data; nil if there is none of that name.
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

// zone is the table of a zone, built once; nil if there is none of that name.
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
		return nil // not reached: ReadZones has read it
	}
	z.tables[name] = t
	return t
}

// Change is a zone in which two databases differ, and the first instant compared at which they do. Gone says that the other
// database lacks the zone.
type Change struct {
	Zone string
	From time.Time
	Gone bool
}

// Diff is the zones of z that differ in another database since 2000, by name: what differs before then retimes nothing.
func (z *Zones) Diff(other *Zones) []Change {
	return z.DiffSince(other, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
}

// DiffSince is the zones of z that differ in another database at an instant or later, up to 2150, by name. From is the first such
// instant not before since.
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

// differ is the first instant from one on at which two tables show different clocks.
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
