package agentserver

// Headers and paths of the protocol between bridge and agent. In streams that it opens, the bridge sends HTTP/1.1:
// CONNECT to CLUSTER:443, PUT of an Announcement, or GET of the agent's credential.
const (
	AgentHeader = "Clusterpass-Agent" // from the agent: its ID, a UUID for each process
	// From the agent: IDs of replicas that it is connected to. These respond with 409.
	HaveHeader       = "Clusterpass-Have"
	ReplicaHeader    = "Clusterpass-Replica"  // from the bridge: the ID of the replica
	ReplicasHeader   = "Clusterpass-Replicas" // from the bridge: the number of replicas
	AnnouncementPath = "/announcement"
	CredentialPath   = "/credential"
)

// Announcement is a message from a replica to its agents.
type Announcement struct {
	Replicas int  `json:"replicas"` // total number
	Draining bool `json:"draining"` // the sending replica is shutting down
}
