"""The rules of `phrases` for errors that a rank reports about others, in the form of `own_phrases`.

The kind "lost" is a lost connection, which in a collective is a lost peer.
"""

from __future__ import annotations

from typing import Final

PEERS: Final = r"""
# Open MPI and PRRTE (help-errmgr-base.txt, help-plm-base.txt, help-mpi-btl-tcp.txt)
peer lost communication with a remote daemon = mpirun lost another node: its daemon, the node or the network failed
    (?:ORTE|PRTE) has lost communication with a remote daemon
peer peer hung up = a peer exited, or the network failed
    MPI communication peer process has unexpectedly disconnected
either UCX = no connection between servers through UCX: check the network interfaces, or a peer exited
    Failed to (?:receive|resolve) UCX
# HCCL topology detection and transport; torch_npu and torch ProcessGroup*.cpp watchdogs
peer Failed to connect agent = some ranks never joined the communicator
    Failed to connect agent
peer topo exchange server get socket timeout = some ranks never joined the communicator
    topo exchange server get socket timeout|Wait timeout for sockets recv
peer topo exchange agent get socket timeout = no connection to rank 0 of the communicator: not started or unreachable
    topo exchange agent get socket timeout
peer wait socket establish timeout = no connection to a peer within HCCL_CONNECT_TIMEOUT: it may not have started
    wait socket establish timeout
either cqe error status[12] = transfer between devices failed after retries: network fault, or the peer exited
    cqe error status\[12\]
peer watchdog timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    watchdog (?:thread terminated .*|caught )collective operation timeout
either heartbeat monitor = a process group's watchdog is stuck, usually because a peer did not join a collective
    heartbeat monitor (?:timed out|thread)
peer another rank's dump signal = another rank has reported a timeout or an error first
    dump signal (?:from another rank|due to .+ from +rank \d)|Another rank reported a timeout
    |a collective timeout on some other rank
# CANN runtime device_error_proc.cc; torch_npu NPUQueue.cpp; TensorFlow base_collective_executor.cc; XLA
# coordination_service_agent.cc
either event wait timeout = timeout waiting for an event, usually for a peer
    event wait timeout occurred
either link between devices = a link to another device failed: network fault, or the peer exited
    HCCS LINK ERROR|HCCL OP RETRY FAILED
either memory of a remote device = memory fault of a remote device, or an invalid address
    SUSPECT (?:MEM|REMOTE) ERROR
either FORCE STOP = device tasks were stopped by the program, usually after an error of another rank
    \bFORCE STOP\b|PTA force stop
peer Collective ops is aborted by = a peer exited, or the network failed
    Collective ops is aborted by
peer coordination service = a peer exited, or the network failed
    distributed service detected fatal errors|coordination service has returned error
# CPython faulthandler.c (dump_traceback_later)
either limit of faulthandler = the program exceeded its own time limit, perhaps because it waits for a peer
    ^Timeout \(\d+:\d\d:\d\d
# Horovod common/common.h (SHUT_DOWN_ERROR)
peer Horovod has been shut down = another rank has failed or ended
    Horovod has been shut down
peer collective timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    due to (?:collective timeout|watchdog hang)|watchdog got stuck for
peer ncclRemoteError = a peer exited, or the network failed
    ncclRemoteError
peer remote process exited or there was a network error = a peer exited, or the network failed
    remote process exited or there was a network error
peer taking the entire process down = a collective timed out: it waited for a peer that is missing, slow or has exited
    taking the entire process down
either call of a worker = a worker of vLLM or ray did not answer in time: it hangs or has ended, see its log
    RPC call to \w+ timed out|ray\.exceptions\.(?:Get|RayChannel)TimeoutError
either communicator aborted = a communicator was aborted: another rank failed, or a collective timed out
    (?:NCCL|HCCL) communicator was aborted
# torch c10d TCPStore.cpp, ProcessGroupGloo.cpp; gloo transport/tcp
peer recvValue failed = a peer exited, or the network failed
    recvValue\w* failed|Stop_waiting response is expected|remote server shutdown or crash|Failed to recv, got 0 bytes
peer connectFullMesh failed = no connection to a peer: not started, exited or unreachable
    connectFullMesh failed
peer store timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    wait timeout after \d+ms|Timed out waiting (?:\d+ms )?for (?:recv|send|key:)
    |store->get\('[^']+'\) got error: .*tim(?:ed |e)out
peer store->get failed = a communicator cannot be set up: a peer exited, did not start in time, or is unreachable
    store->get\('[^']+'\) got error
peer monitored barrier failed = a collective timed out: it waited for a peer that is missing, slow or has exited
    monitoredBarrier\b(?! ?[=:])|failed to pass monitoredBarrier|\branks? [\d, ]+ failed to (?:report|reach)
# MindSpore distributed/cluster/topology and msrun; torch c10d rendezvous
peer Failed to connect to the meta server = cannot reach MindSpore's scheduler
    Failed to connect to the meta server node
peer Failed to register the compute graph node = not all MindSpore workers joined in time
    Failed to register the compute graph node|Topology build timed out
peer It may exit with exception = MindSpore's scheduler lost a worker
    is timed out.*It may exit with exception|The total number of timed out node
peer Spawned worker process number is not as expected = a MindSpore worker exited early
    Spawned worker process number is not as expected
peer Timed out waiting for clients = not all ranks joined the rendezvous
    RendezvousTimeoutError|timed out.*(?:waiting for clients|trying to connect to|in store based barrier)|clients joined
peer RendezvousConnectionError = the server of the rendezvous cannot be reached: not started, ended, or unreachable
    RendezvousConnectionError
peer RendezvousClosedError = the rendezvous was closed: the launcher of another node has ended
    RendezvousClosedError
# ray gcs_client and gcs_rpc_client.h
either ray's head node = ray's head node cannot be reached: not started, ended, or at another address
    Failed to connect to GCS|Timed out while waiting for GCS
# errno(3): ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EPIPE; CPython http.client; gloo
# transport/tcp/pair.cc; torch c10d Utils.hpp
lost Connection closed by peer = the remote side closed the connection
    Connection closed by (?:remote )?peer|Connection was likely closed|Remote end closed connection without response
lost Connection reset by peer = the remote side closed the connection
    Connection reset by peer
lost Connection refused = the remote side is not listening: not started yet, or exited
    Connection refused
lost Connection timed out = the remote side did not answer in time
    Connection timed out
lost No route to host = the remote side cannot be reached: check its address and the network interfaces
    No route to host|Network is unreachable
lost Broken pipe = the remote side of a connection or pipe exited
    Broken pipe
lost Socket Timeout = the remote side did not answer in time
    Socket ?Timeout
# torch_npu NPUQueue.cpp: an operator that runs asynchronously
either* asynchronous operator = an operator of the device failed: see its error above, or use ASCEND_LAUNCH_BLOCKING=1
    The Inner error is reported as above
"""
