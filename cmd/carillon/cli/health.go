package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// lastHour sums the minutes of an endpoint's health.
func lastHour(o output.Object) string {
	var succeeded, failed int64
	for _, minute := range o.At("minutes").Items() {
		succeeded += number(minute.At("succeeded"))
		failed += number(minute.At("failed"))
	}
	return fmt.Sprintf("%d succeeded, %d failed", succeeded, failed)
}

// lastAnswers returns the last answers of an endpoint, newest first as the server lists them.
func lastAnswers(o output.Object) string {
	var texts []string
	for _, answer := range o.At("last").Items() {
		text := answer.At("status").String()
		if text == "" {
			text = answer.At("error").String()
		}
		texts = append(texts, text+" in "+answer.At("took_ms").String()+" ms")
	}
	return strings.Join(texts, "; ")
}

// number returns a whole number, or 0 if there is none.
func number(o output.Object) int64 {
	n, err := strconv.ParseInt(o.String(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
