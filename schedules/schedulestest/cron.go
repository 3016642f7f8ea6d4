package schedulestest

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// EachHour returns a cron expression in UTC that fires once an hour, next in so many minutes. No tick of it comes while a test runs.
func EachHour(minutes int) string {
	return fmt.Sprintf("%d * * * *", time.Now().UTC().Add(time.Duration(minutes)*time.Minute).Minute())
}

// EachDay returns a cron expression that fires once a day in a zone, next in about twelve hours. No tick of it comes while a test runs.
func EachDay(zone string) string {
	return fmt.Sprintf("0 %d * * *", time.Now().Add(12*time.Hour).In(calendar.InForce().Location(zone)).Hour())
}
