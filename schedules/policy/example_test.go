package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A schedule states its overlap policy, its workflow states a timeout. All other terms are the built-in ones.
func ExampleResolve() {
	own, err := policy.ReadTerms("", &policy.Policy{Overlap: "allow_all"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	terms, err := policy.Resolve(own, []byte(`{"policy": {"overlap": "skip"}, "delivery": {"timeout": "5m"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("overlap:", terms.Overlap)
	fmt.Println("timeout:", terms.Timeout)
	fmt.Println("missed:", terms.Missed)
	// Output:
	// overlap: allow_all
	// timeout: 5m0s
	// missed: last
}

// All faults are found at once. Each has the place of the term in the request.
func ExampleReadTerms() {
	_, err := policy.ReadTerms("", &policy.Policy{Overlap: "often"}, &policy.Delivery{Timeout: "soon"})
	if f, ok := errors.AsType[*fault.Error](err); ok {
		for _, field := range f.Fields {
			fmt.Println(field.Pointer, field.Detail)
		}
	}
	// Output:
	// /policy/overlap "often" is not one of skip, buffer_one, buffer_all, cancel_other, allow_all
	// /delivery/timeout "soon" is not a duration such as 90s, 5m, 1h30m, 1d or 1w
}

func ExampleTerms_Expired() {
	terms := policy.BuiltIn()
	terms.MaxLateness = time.Hour
	nominal := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	fmt.Println(terms.Expired(nominal, nominal.Add(59*time.Minute)))
	fmt.Println(terms.Expired(nominal, nominal.Add(61*time.Minute)))
	terms.OnExpired = "fire"
	fmt.Println(terms.Expired(nominal, nominal.Add(61*time.Minute)))
	// Output:
	// false
	// true
	// false
}

func ExampleParseDuration() {
	for _, text := range []string{"90s", "1h30m", "2w", "1.5h"} {
		d, ok := policy.ParseDuration(text)
		fmt.Println(text, d, ok)
	}
	// Output:
	// 90s 1m30s true
	// 1h30m 1h30m0s true
	// 2w 336h0m0s true
	// 1.5h 0s false
}
