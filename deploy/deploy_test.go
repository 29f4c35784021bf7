// Package deploy_test holds the shipped configurations against the server and the commands that they are for.
package deploy_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

// options reads a configuration as nats-server does.
func options(t *testing.T, file string) *server.Options {
	t.Helper()
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// cluster sets what nats-cluster.conf asks of the environment.
func cluster(t *testing.T, node string, routes ...string) {
	t.Helper()
	t.Setenv("CAIRN_NODE", node)
	for i, r := range routes {
		t.Setenv(fmt.Sprintf("CAIRN_NATS_%d", i+1), "nats-route://"+r)
	}
}

func TestConfigurationsHoldWhatTheySay(t *testing.T) {
	cluster(t, "n1", "n1:6222", "n2:6222", "n3:6222")
	for _, file := range []string{"nats.conf", "nats-cluster.conf"} {
		o := options(t, file)
		for _, c := range []struct {
			what      string
			got, want any
		}{
			{"max_payload", o.MaxPayload, int32(embedded.MaxPayload)},
			{"max_pending", o.MaxPending, int64(256 << 20)},
			{"jetstream", o.JetStream, true},
			{"store_dir", o.StoreDir, "/data"},
			{"sync_interval: always", o.SyncAlways, true},
			{"max_memory_store", o.JetStreamMaxMemory, int64(256 << 20)},
			{"max_file_store", o.JetStreamMaxStore, int64(100 << 30)},
			{"port", o.Port, 4222},
			{"http", o.HTTPPort, 8222},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s is %v, want %v", file, c.what, c.got, c.want)
			}
		}
	}
	o := options(t, "nats-cluster.conf")
	var routes []string
	for _, r := range o.Routes {
		routes = append(routes, r.Host)
	}
	if o.ServerName != "n1" || o.Cluster.Name != "cairn" || o.Cluster.Port != 6222 || !slices.Equal(routes, []string{"n1:6222", "n2:6222", "n3:6222"}) {
		t.Errorf("cluster: server %q of %q on port %d, routes %q", o.ServerName, o.Cluster.Name, o.Cluster.Port, routes)
	}
}

// start runs a server with a shipped configuration, but for ports and folder.
func start(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.StoreDir, o.Host, o.Port, o.HTTPPort, o.NoSigs, o.NoLog = t.TempDir(), "127.0.0.1", server.RANDOM_PORT, 0, true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server did not start")
	}
	return s
}

func TestOneNodeTakesTheLayout(t *testing.T) {
	s := start(t, options(t, "nats.conf"))
	nc, js, err := bus.Connect(bus.Config{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := bus.Init(t.Context(), js, bus.Layout{}); err != nil {
		t.Fatal(err)
	}
	if n := nc.MaxPayload(); n != embedded.MaxPayload {
		t.Errorf("max_payload %d", n)
	}
	// What must survive a power cut is synced with each write; what is sent again is not.
	for name, want := range map[string]jetstream.PersistModeType{
		bus.StreamLog: jetstream.DefaultPersistMode, "KV_" + bus.BucketClaims: jetstream.DefaultPersistMode, "OBJ_" + bus.BucketArtifacts: jetstream.DefaultPersistMode,
		bus.StreamReports: jetstream.AsyncPersistMode, bus.StreamWork: jetstream.AsyncPersistMode, bus.StreamResults: jetstream.AsyncPersistMode,
	} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.PersistMode; got != want {
			t.Errorf("%s: persist mode %v, want %v", name, got, want)
		}
	}
}

func TestThreeNodesTakeTheLayoutWithThreeReplicas(t *testing.T) {
	ports, routes := make([]int, 3), make([]string, 3)
	for i := range ports {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i], routes[i] = ln.Addr().(*net.TCPAddr).Port, ln.Addr().String()
		_ = ln.Close()
	}
	var servers []*server.Server
	for i, port := range ports {
		cluster(t, fmt.Sprintf("n%d", i+1), routes...)
		o := options(t, "nats-cluster.conf")
		o.Cluster.Host, o.Cluster.Port = "127.0.0.1", port
		servers = append(servers, startClustered(t, o))
	}
	// Only the leader knows its peers.
	formed := func(s *server.Server) bool {
		return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(ports)
	}
	for deadline := time.Now().Add(30 * time.Second); !slices.ContainsFunc(servers, formed); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cluster did not form")
		}
	}
	nc, js, err := bus.Connect(bus.Config{URL: servers[0].ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := bus.Init(t.Context(), js, bus.Layout{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	log, err := js.Stream(t.Context(), bus.StreamLog)
	if err != nil {
		t.Fatal(err)
	}
	if got := log.CachedInfo().Config; got.Replicas != 3 || got.PersistMode != jetstream.DefaultPersistMode {
		t.Errorf("the log has %d replicas, persist mode %v", got.Replicas, got.PersistMode)
	}
}

// startClustered does not wait for readiness, which needs the others.
func startClustered(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.StoreDir, o.Host, o.Port, o.HTTPPort, o.NoSigs, o.NoLog = t.TempDir(), "127.0.0.1", server.RANDOM_PORT, 0, true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// compose is what of a compose file is looked at.
type compose struct {
	Services map[string]struct {
		Image   string
		Command []string
	}
}

func TestComposeCallsCommandsAndFlagsThatExist(t *testing.T) {
	data, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file compose
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	text := source(t, "../cmd/cairn")
	started := map[string]bool{}
	for name, s := range file.Services {
		if s.Image != "cairn" {
			continue
		}
		if len(s.Command) == 0 {
			t.Fatalf("%s has no command", name)
		}
		started[s.Command[0]] = true
		if !regexp.MustCompile(`Use:\s+"` + regexp.QuoteMeta(s.Command[0]) + `[" ]`).MatchString(text) {
			t.Errorf("%s: cairn has no command %s", name, s.Command[0])
		}
		for _, arg := range s.Command[1:] {
			if flag, ok := strings.CutPrefix(arg, "--"); ok && !strings.Contains(text, `"`+flag+`"`) {
				t.Errorf("%s: cairn has no flag %s", name, arg)
			}
		}
	}
	for _, want := range []string{"init", "gateway", "planner", "executor", "toolrouter", "runstore"} {
		if !started[want] {
			t.Errorf("nothing starts cairn %s", want)
		}
	}
}

// source is the text of a folder's Go files.
func source(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", dir, err, len(files))
	}
	var all strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

func TestTheReadmeNamesTheStoreFolder(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nats-server -c deploy/nats.conf\n", "keeps the data in `" + options(t, "nats.conf").StoreDir + "`"} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README does not say %q", want)
		}
	}
}
