package carillon_test

import (
	"errors"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestWorkflowsAndEndpoints(t *testing.T) {
	t.Parallel()
	const (
		workflow = `{"name":"w","endpoint":null,"version":null,"max_running":null,"defaults":{"delivery":{"queue":"slow"}}}`
		endpoint = `{"name":"e","url":"https://a.test/","batch":1,"headers":{},"events":[],"state":"enabled","secret":"whsec_x"}`
	)
	s := &script{answers: []answer{
		{status: 201, body: workflow}, {status: 200, body: workflow}, {status: 200, body: `{"items":[` + workflow + `],"next_cursor":null}`}, {status: 204},
		{status: 201, body: endpoint}, {status: 200, body: endpoint}, {status: 200, body: `{"items":[` + endpoint + `],"next_cursor":null}`},
		{status: 201, body: endpoint}, {status: 200, body: `{"webhook_id":"test_1","status":503,"took_ms":3,"error":"down"}`}, {status: 204},
	}}
	c := s.client(t)
	w, err := c.Workflows.Put(t.Context(), "w", carillon.WorkflowParams{Defaults: carillon.Defaults{Delivery: carillon.Delivery{Queue: "slow"}}})
	if err != nil || w.Endpoint != "" || w.Defaults.Delivery.Queue != "slow" {
		t.Errorf("got %+v, %v", w, err)
	}
	if w, err := c.Workflows.Get(t.Context(), "w"); err != nil || w.Name != "w" {
		t.Errorf("got %+v, %v", w, err)
	}
	for w, err := range c.Workflows.List(t.Context()) {
		if err != nil || w.Name != "w" {
			t.Errorf("got %+v, %v", w, err)
		}
	}
	if err := c.Workflows.Delete(t.Context(), "w"); err != nil {
		t.Error(err)
	}
	e, err := c.Endpoints.Put(t.Context(), "e", carillon.EndpointParams{URL: "https://a.test/"})
	if err != nil || e.Secret != "whsec_x" {
		t.Errorf("got %+v, %v", e, err)
	}
	if e, err := c.Endpoints.Get(t.Context(), "e"); err != nil || e.URL != "https://a.test/" {
		t.Errorf("got %+v, %v", e, err)
	}
	for e, err := range c.Endpoints.List(t.Context()) {
		if err != nil || e.Batch != 1 {
			t.Errorf("got %+v, %v", e, err)
		}
	}
	if e, err := c.Endpoints.RotateSecret(t.Context(), "e"); err != nil || e.Secret != "whsec_x" {
		t.Errorf("got %+v, %v", e, err)
	}
	if trial, err := c.Endpoints.Test(t.Context(), "e"); err != nil || *trial.Status != 503 || *trial.Error != "down" {
		t.Errorf("got %+v, %v", trial, err)
	}
	if err := c.Endpoints.Delete(t.Context(), "e"); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range s.seen {
		got = append(got, r.Method+" "+r.URL.Path+" "+r.body)
	}
	want := []string{
		`PUT /base/v1/workflows/w {"defaults":{"delivery":{"queue":"slow"}}}`, "GET /base/v1/workflows/w ", "GET /base/v1/workflows ", "DELETE /base/v1/workflows/w ",
		`PUT /base/v1/endpoints/e {"url":"https://a.test/"}`, "GET /base/v1/endpoints/e ", "GET /base/v1/endpoints ",
		"POST /base/v1/endpoints/e/secrets ", "POST /base/v1/endpoints/e/test ", "DELETE /base/v1/endpoints/e ",
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestSecretIsNotLostInARetry(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{err: errCut}}}
	if _, err := s.client(t).Endpoints.Put(t.Context(), "e", carillon.EndpointParams{}); !errors.Is(err, errCut) || len(s.seen) != 1 {
		t.Errorf("got %v after %d requests", err, len(s.seen))
	}
}
