package calendar

import (
	"errors"
	"testing"
)

func TestAFormOfANewerProgramIsToldFromABrokenOne(t *testing.T) {
	t.Parallel()
	for text, newer := range map[string]bool{
		`{"v":2,"zone":"UTC"}`:                                   true,
		`{"v":2,"zone":["UTC"],"fields":"all"}`:                  true,
		`{"v":1,"zone":"UTC","phases":[1]}`:                      true,
		`{"v":1,"zone":"UTC","every":[{"every":60,"unit":"s"}]}`: true,
		`{"v":0,"zone":"UTC"}`:                                   false,
		`{"v":1,"zone":7}`:                                       false,
		`{"v":1,"zone":"Gone/Zone","every":[{"every":60}]}`:      false,
		`{"v":1,`: false,
		``:        false,
	} {
		if _, err := FromCanonical([]byte(text), Context{}); err == nil || errors.Is(err, ErrNewerForm) != newer {
			t.Errorf("%s: got %v, want a newer form: %t", text, err, newer)
		}
	}
}
