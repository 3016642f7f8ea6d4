package policy

import (
	"unicode"
	"unicode/utf8"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// GlobalKey is the key of a schedule that is for nobody in particular.
const GlobalKey = "global"

// Name names a schedule of a tenant.
type Name struct {
	Tenant   tenants.ID
	Workflow string
	Key      string
}

// ValidName tells whether s names a workflow, an endpoint, a calendar or a queue: [A-Za-z0-9._-]{1,128}.
func ValidName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ValidKey tells whether s is a key: 1 to 256 bytes of UTF-8 without control characters.
func ValidKey(s string) bool {
	if s == "" || len(s) > 256 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// CheckName returns the fault of a name, located at pointer, or nil. what is the kind of thing that has the name.
func CheckName(pointer, what, s string) error {
	if ValidName(s) {
		return nil
	}
	return fault.Invalid(pointer, "a %s's name is 1 to 128 of A-Z a-z 0-9 . _ -", what)
}

// CheckSubject returns the fault of a subject, located at pointer, or nil.
func CheckSubject(pointer, s string) error {
	if ValidKey(s) {
		return nil
	}
	return fault.Invalid(pointer, "a subject is 1 to 256 bytes of UTF-8 without control characters")
}

// CheckKey returns the fault of a key, located at pointer, or nil.
func CheckKey(pointer, s string) error {
	if ValidKey(s) {
		return nil
	}
	return fault.Invalid(pointer, "a key is 1 to 256 bytes of UTF-8 without control characters")
}
