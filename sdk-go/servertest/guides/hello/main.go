// Command hello is the program of the README: a reminder that fires in the zone of its user.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func main() {
	client, err := carillon.New(carillon.Config{}) // CARILLON_URL and CARILLON_API_KEY
	if err != nil {
		log.Fatal(err)
	}
	app := carillon.NewApp(client)
	carillon.Handle(app, "reminder", func(ctx context.Context, t carillon.Tick[string]) error {
		fmt.Println(t.LocalTime.Format(time.RFC1123Z), t.Subject, t.Payload)
		return nil
	})
	app.Declare("reminder", "user_123", carillon.Cron("* * * * *").In(carillon.SubjectZone), carillon.Payload("drink water"))
	log.Fatal(app.Run(context.Background()))
}
