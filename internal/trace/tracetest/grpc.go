package tracetest

import (
	"context"
	"net"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// NewGRPC starts a Collector that takes spans by gRPC. Its URL has the scheme http: it speaks without TLS.
func NewGRPC(t *testing.T) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + listener.Addr().String()}
	server, served := grpc.NewServer(), make(chan error, 1)
	collector.RegisterTraceServiceServer(server, &grpcService{collector: c})
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

type grpcService struct {
	collector.UnimplementedTraceServiceServer
	collector *Collector
}

// Export implements collector.TraceServiceServer.
func (s *grpcService) Export(_ context.Context, sent *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	raw, err := proto.Marshal(sent)
	if err != nil {
		return nil, err
	}
	s.collector.add(raw, sent)
	return &collector.ExportTraceServiceResponse{}, nil
}
