package web

import (
	"net/url"

	"github.com/carillonhq/carillon/internal/fault"
)

// NotEmpty refuses parameters that are sent without a value: they would not mean what leaving them out means.
func NotEmpty(q url.Values, names ...string) error {
	var errs []error
	for _, name := range names {
		if q.Has(name) && q.Get(name) == "" {
			errs = append(errs, fault.Invalid("/"+name, "%s is empty", name))
		}
	}
	return fault.Join(errs...)
}
