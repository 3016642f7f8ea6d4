// Command clients shows that a client that a generator made from api/openapi.yaml works: it puts a schedule on a server, and reads it.
//
//	clients URL TOKEN
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/carillonhq/carillon/tools/clients/generated"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: clients URL TOKEN")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(url, token string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := generated.NewClientWithResponses(url, generated.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	cron := generated.Spec_Cron{}
	if err := cron.FromSpecCron0("0 8 * * *"); err != nil {
		return err
	}
	zone := "America/New_York"
	put, err := client.PutScheduleWithResponse(ctx, "generated", "go", nil, generated.ScheduleParams{Spec: generated.Spec{Cron: &cron, Timezone: &zone}})
	if err != nil {
		return err
	}
	if put.JSON201 == nil {
		return fmt.Errorf("put: %s %s", put.Status(), put.Body)
	}
	got, err := client.GetScheduleWithResponse(ctx, "generated", "go", nil)
	if err != nil {
		return err
	}
	if got.JSON200 == nil || got.JSON200.Id != put.JSON201.Id {
		return fmt.Errorf("get: %s %s", got.Status(), got.Body)
	}
	fmt.Println(got.JSON200.Id, got.JSON200.TimezoneInForce, *got.JSON200.NextLocal)
	return nil
}
