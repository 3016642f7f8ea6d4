package carillontest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// patch applies a merge patch (RFC 7396) to the definition of a schedule.
func (s *Server) patch(r *http.Request, of name) (int, any) {
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return refuse(http.StatusBadRequest, "malformed_json", err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	if status, refused := condition(r, held); refused != nil {
		return status, refused
	}
	params := carillon.Params{Spec: held.Spec, Policy: held.Policy, Delivery: held.Delivery, Labels: held.Labels, Payload: held.view().Payload}
	if held.Note != "" {
		params.Note = &held.Note
	}
	stored, err := json.Marshal(params)
	if err != nil {
		panic(err) // it came as JSON
	}
	merged, err := merge(stored, sent)
	if err != nil {
		return refuse(http.StatusBadRequest, "malformed_json", err.Error())
	}
	var p definition
	d := json.NewDecoder(bytes.NewReader(merged))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return refuse(http.StatusBadRequest, "malformed_json", err.Error())
	}
	if p.Payload == "null" { // as none is shown
		p.Payload = ""
	}
	if p.Note == nil && held.Note != "" {
		p.Note = new("")
	}
	return s.define(of, p)
}

// merge applies a merge patch to a value.
func merge(value, patch json.RawMessage) (json.RawMessage, error) {
	var changes, members map[string]json.RawMessage
	if json.Unmarshal(patch, &changes) != nil || changes == nil {
		return patch, nil
	}
	if json.Unmarshal(value, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		merged, err := merge(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = merged
	}
	return json.Marshal(members)
}
