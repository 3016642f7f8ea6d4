package push

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/tenants"
)

const (
	// maskedValue stands for the value of a header in every answer. In a request it keeps the stored value.
	maskedValue = "…"
	// sealedValue begins a stored value that is sealed; base64 follows. No header has a control character.
	sealedValue = "\x01"
)

// valuePlace returns the place that the value of a header is sealed for: it cannot be opened for another.
func valuePlace(tenant tenants.ID, endpoint, header string) []byte {
	return fmt.Appendf(secretPlace(tenant, endpoint), " header %s", http.CanonicalHeaderKey(header))
}

// sealValue returns the value of a header as it is stored.
func sealValue(k *keyset.Keyset, place []byte, value string) (string, error) {
	if k == nil {
		return value, nil
	}
	sealed, err := k.Seal([]byte(value), place)
	if err != nil {
		return "", fmt.Errorf("seal a header: %w", err)
	}
	return sealedValue + base64.StdEncoding.EncodeToString(sealed), nil
}

// openValue returns the value of a stored header.
func openValue(k *keyset.Keyset, place []byte, stored string) (string, error) {
	text, sealed := strings.CutPrefix(stored, sealedValue)
	if !sealed {
		return stored, nil
	}
	if k == nil {
		return "", errors.New("the value of a header is sealed, and there is no keyset")
	}
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", errors.New("the value of a header is in a form that this version does not know")
	}
	value, err := k.Open(bytes, place)
	if err != nil {
		return "", errors.New("the value of a header is not sealed by a key of the keyset")
	}
	return string(value), nil
}

// openValues returns the headers of an endpoint with their values, or the first error.
func openValues(k *keyset.Keyset, tenant tenants.ID, endpoint string, stored []byte) (map[string]string, error) {
	var headers map[string]string
	if err := json.Unmarshal(stored, &headers); err != nil {
		return nil, errors.New("the headers are in a form that this version does not know")
	}
	for name, value := range headers {
		opened, err := openValue(k, valuePlace(tenant, endpoint, name), value)
		if err != nil {
			return nil, err
		}
		headers[name] = opened
	}
	return headers, nil
}

// resealedValues returns stored headers with each value sealed by the current key. A value that cannot be opened stays as it is.
func resealedValues(k *keyset.Keyset, tenant tenants.ID, endpoint string, stored map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for name, value := range stored {
		place := valuePlace(tenant, endpoint, name)
		opened, err := openValue(k, place, value)
		if err == nil {
			value, err = sealValue(k, place, opened)
			if err != nil {
				return nil, err
			}
		}
		out[name] = value
	}
	return out, nil
}

// newValues returns the headers of a request as they are stored. A masked value keeps the stored one.
func newValues(k *keyset.Keyset, tenant tenants.ID, endpoint string, sent, kept map[string]string) (map[string]string, error) {
	byName := map[string]string{}
	for name, value := range kept {
		byName[http.CanonicalHeaderKey(name)] = value
	}
	out := map[string]string{}
	var errs []error
	for name, value := range sent {
		stored, found := byName[http.CanonicalHeaderKey(name)]
		var err error
		switch {
		case value != maskedValue:
			stored, err = sealValue(k, valuePlace(tenant, endpoint, name), value)
		case !found:
			err = fault.Invalid(headerPointer(name), "there is no stored value to keep: send the value")
		}
		errs = append(errs, err)
		out[name] = stored
	}
	return out, fault.Join(errs...)
}

func headerPointer(name string) string {
	return "/headers/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// masked replaces the values of headers by maskedValue.
func masked(headers map[string]string) map[string]string {
	for name := range headers {
		headers[name] = maskedValue
	}
	return headers
}

// bareURL returns a URL without what may be a credential: its query, user and fragment.
func bareURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
