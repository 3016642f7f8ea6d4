package web

import (
	"net/url"

	"github.com/carillonhq/carillon/internal/fault"
)

// NotEmpty returns a fault for named parameters with an empty value. An empty parameter does not mean the same as an absent one.
func NotEmpty(q url.Values, names ...string) error {
	var errs []error
	for _, name := range names {
		if q.Has(name) && q.Get(name) == "" {
			errs = append(errs, fault.Invalid("/"+name, "%s is empty", name))
		}
	}
	return fault.Join(errs...)
}
