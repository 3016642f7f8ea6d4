package carillontest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"net/http"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// lines is an answer in NDJSON.
type lines []any

// bulk puts each line by itself. Unlike the API it has no batches, and so reports no duplicates.
func (s *Server) bulk(r *http.Request) (int, any) {
	var out lines
	var sum carillon.BulkSummary
	in := bufio.NewScanner(r.Body)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		result := s.bulkLine(r, in.Bytes())
		result.Line = n
		switch result.Result {
		case "inserted":
			sum.Inserted++
		case "updated":
			sum.Updated++
		case "unchanged":
			sum.Unchanged++
		default:
			sum.Errors++
		}
		if result.Error != nil || r.URL.Query().Get("results") != "errors" {
			out = append(out, result)
		}
	}
	if err := in.Err(); err != nil {
		return refuse(http.StatusBadRequest, "malformed_body", err.Error())
	}
	return http.StatusOK, append(out, map[string]any{"summary": sum, "warnings": []carillon.Warning{}})
}

func (s *Server) bulkLine(r *http.Request, text []byte) (result carillon.BulkResult) {
	of := name{key: "global"}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return carillon.BulkResult{Result: "error", Error: &carillon.BulkFault{Status: http.StatusBadRequest, Code: "invalid_json", Detail: err.Error()}}
	}
	_ = json.Unmarshal(members["workflow"], &of.workflow) // a name that is not a string counts as empty
	_ = json.Unmarshal(members["key"], &of.key)
	maps.DeleteFunc(members, func(member string, _ json.RawMessage) bool { return member == "workflow" || member == "key" })
	definition, err := json.Marshal(members)
	if err != nil {
		panic(err) // it was JSON
	}
	s.mu.Lock()
	before := int64(0)
	if held := s.schedules[of]; held != nil {
		before = held.Version
	}
	s.mu.Unlock()
	put, err := http.NewRequestWithContext(r.Context(), http.MethodPut, "/", bytes.NewReader(definition))
	if err != nil {
		panic(err) // nothing in it is the client's
	}
	result = carillon.BulkResult{Workflow: of.workflow, Key: of.key, Result: "updated"}
	_, answer := s.put(put, of)
	switch a := answer.(type) {
	case problem:
		result.Result, result.Error = "error", &carillon.BulkFault{Status: a.Status, Code: a.Code, Detail: a.Detail, Errors: a.Errors}
	case carillon.Schedule:
		result.ScheduleID = a.ID
		if before == 0 {
			result.Result = "inserted"
		} else if a.Version == before {
			result.Result = "unchanged"
		}
	}
	return result
}
