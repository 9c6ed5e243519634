"""The rules of `phrases` for classes of errors, in the form of `own_phrases`: they count if no other rule does.

They are applied to the message of the chosen error only, since their words are common in logs, and only if it is the
rank's own. A rule holds for every error of its class, so it says what to check, not what is wrong.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = r"""
# bash and env(1); CPython subprocess.py; pip; docker, containerd and apptainer; taskset(1) and numactl(8)
root compiler = a C or C++ compiler is missing: install gcc and g++
    Failed to find C compiler
root Windows line endings = a script has Windows line endings: convert it, for example with dos2unix
    \\r\W?: No such file or directory$
root ssh = ssh to another server is refused: check its keys and known hosts
    Permission denied \(publickey|Host key verification failed
root permission of a command = no permission to execute, read or write a file: check its mode and owner
    ^(?:\S+: line \d+|(?:\S*/)?(?:ba|da|z)?sh(?:: (?:line )?\d+)?|(?:\S*/)?env): .+: Permission denied$
    |\berrno\W{1,4}13\b
root version for pip = pip finds no matching version of a package: check its name, the version of Python and the index
    No matching distribution found|is not a supported wheel|Could not find a version that satisfies|ResolutionImpossible
root container = a container cannot be started: check its image, mounts and devices
    Error response from daemon|container creation failed|failed to create (?:containerd task|shim)|oci runtime
    |pyxis: .*\bfail|pyxis: couldn't start
root launch by Slurm = Slurm cannot launch a task: see the log of slurmd on its node
    ^srun: error: (?:task \S+ launch|Task launch for .*|Application launch) failed|^srun: error: slurm_receive_msgs?:
root cores = CPU cores or NUMA nodes are not available here: check their numbers, and the container's cpuset
    failed to set pid \d+'s affinity|^<[\d,-]+> is invalid|cpu argument \S+ is out of range
root program not started = a program cannot be started: check that it is installed, executable and on PATH
    in _execute_child:
# errno(3): ENAMETOOLONG, ETXTBSY, ELOOP, EXDEV, EBUSY, ENOTEMPTY, ENXIO, ENODEV, E2BIG, ENOEXEC, EFBIG, ENOLCK,
# EREMOTEIO, EUCLEAN, EHOSTDOWN, EHWPOISON, ENOSYS, EOPNOTSUPP
root name too long = a file name is longer than 255 bytes, or a path longer than 4095
    File name too long
root text file busy = a file is replaced while another process runs it: build it once, before the ranks start
    Text file busy
root loop of links = symbolic links form a loop
    Too many levels of symbolic links
root cross-device link = a file cannot be renamed or linked across file systems
    Invalid cross-device link
root resource busy = a file, directory, mount or device is in use: open, mounted or held by a process
    \[Errno 16\]
root directory not empty = a directory cannot be removed: another rank or process writes to it, or has its files open
    Directory not empty
root no such device = a device or its driver is missing: check the devices of the container
    \[Errno (?:6|19)\]
root argument list = the arguments and variables of a program are too long
    Argument list too long
root exec format = a program was built for another type of CPU, or a script lacks its first line (#!)
    Exec format error
root file too large = a file exceeds the limit of its file system, or ulimit -f
    File too large
root file locks = a file system provides no file locks: see its mount options, or use a local directory
    No locks available
root lock of a file = a file is locked: by another process, or by one that has ended without releasing it
    file lock '.*could not be acquired|database is locked
root file system = a disk or network file system failed
    disk I/O error|Remote I/O error|Structure needs cleaning|\[Errno 112\] Host is down
root memory of the host = uncorrectable memory error of the server: hardware fault
    Memory page has hardware error
root not supported = a file system or device does not support an operation
    \[Errno (?:38|95)\]
# tarfile, zlib, lzma and gzip of CPython; Pillow; Arrow; HDF5; NumPy; sentencepiece; libsndfile; OpenCV
root other format = a file is incomplete, damaged or in another format: copy or download it again
    tarfile\.\w*Error|zlib\.error|LZMAError|Not a gzipped file|cannot identify image file|broken data stream
    |Parquet magic bytes|Parquet file size is|Not an Arrow file|file signature not found|truncated file: eof
    |unexpected end of file|Unexpected EOF in archive|not in gzip format|End-of-central-directory signature not found
    |unexpected EOF|\b(?:file|archive|image|checkpoint|shard)\b.{0,40}\bcorrupt
    |\bcorrupt(?:ed)? (?:file|archive|image|checkpoint|record at|shard|jpeg|png|zip|tar|gzip)
    |is not (?:a|an|the) (?!valid file|regular file|local file|file)[\w-]+ (?:\w+ )?file\b
    |Failed to interpret file|could not parse ModelProto|Format not recognised|PyTorchFileReader|invalid magic number
root no image = an image cannot be read: its file is missing or damaged
    _src\.empty\(\)|load image failed|invalid image data|imread\w*\(.*can't open
# CPython json, codecs and PyYAML
root JSON = invalid JSON: the text is empty, incomplete or in another format
    ^(?:[\w.]+\.)?JSONDecodeError:
root YAML = invalid YAML: see the line and column that the message names
    ^yaml\.\w+\.\w+Error
root encoding of a text = a file is not text in the expected encoding: see open(encoding=...), and LANG=C.UTF-8
    ^UnicodeDecodeError:
root encoding of the output = the locale cannot encode a character: set LANG=C.UTF-8 or PYTHONUTF8=1
    ^UnicodeEncodeError: '(?:ascii|latin-1|gbk|charmap)'
# CPython built-in exceptions; MindSpore dataset/core/validator_helpers.py
root path exists = a file or directory already exists, perhaps created by another rank at the same moment
    ^FileExistsError:
root is a directory = a path refers to a directory, but a file is expected
    ^IsADirectoryError:
root not a directory = a part of a path is a file, but a directory is expected
    ^NotADirectoryError:
root no such checkpoint = a checkpoint is missing or incomplete: check its path on this node
    (?:can't|cannot|could not|couldn't|unable to|failed to) (?:find|locate|load|read) (?:a |the |any )?
    (?:\w+ ){0,2}checkpoints?\b|Unable to find 'latest' file|Error: no (?:valid )?checkpoints? found
root file not opened = a file cannot be opened: check its path on this node, and its permissions
    (?:(?:fail(?:ed)?|unable) to|cannot|can't|could not|couldn't) open (?:the )?
    (?:['"]|\S*/|(?:\w+ )?(?:files?|index)\b)
    |open file failed
root invalid file = a file is incomplete, damaged or in another format: copy or create it again
    Invalid file,
root no such path = a file or directory is missing on this node: check its path, the working directory and the mounts
    ^(?:[\w.]+\.)?FileNotFoundError: .*\[Errno 2\] .*: b?['\"]|does not exist or permission denied
    |^RuntimeError: Parent directory \S+ does not exist
    |^FileNotFoundError: .*['" ][.~]{0,2}/\w
    |\b(?:file|path|dir|directory|folder|checkpoint|dataset):? ['"]?[.~]*/\S* (?:does not|doesn't|not) (?:exist|found)
    |^assert (?:(?!\bnot ).)*\b(?:is_?file|is_?dir|exists)\(
# CPython pickle.py and import system (import_from in ceval.c: a namespace package has no location); transformers
# utils/versions.py and import_utils.py; tokenizers; peft; setuptools
root extension loaded twice = a native extension is loaded twice, or in two versions: check the installed packages
    generic_type: (?:type|cannot initialize type) "|with the same name (?:and overload name )?multiple times
    |Only a single TORCH_LIBRARY|illegal RegisterFlag|flag '\S+' was defined more than once
root no native module = a native extension was built for another version of Python: install it again
    does not define module export function
root protocol of a pickle = a file was pickled by a newer version of Python: use that version, or write the file again
    unsupported pickle protocol
root circular import = modules import each other, or a file has the name of a package
    partially initialized module|\(consider renaming '
root namespace package = a directory without __init__.py is taken for a package: see the working directory and sys.path
    cannot import name '\w+' from '(?!(?:_\w+|sys|builtins|math|time|itertools|gc|posix|array)')[\w.]+'
    \s\(unknown location\)
root submodule = a submodule was not imported: import it by its full name
    ^AttributeError: module '(?:importlib' has no attribute '(?:util|machinery|metadata|resource)
    |distutils' has no attribute '\w|concurrent' has no attribute 'futures|logging' has no attribute 'handlers
    |xml' has no attribute '\w|urllib' has no attribute '(?:parse|request|error))
root name of a module = a module lacks a name that its caller expects: check its version, and that no file shadows it
    ^AttributeError: module '[\w.]+' has no attribute|cannot import name '\w+' from '[\w.]+' \(/
root class of a pickle = a pickled object needs a name that its module lacks: check its version, or define it there
    ^AttributeError: Can't get attribute '
root name of a class = a class lacks an attribute that its caller expects: check the versions of both
    ^AttributeError: type object '\w+' has no attribute
root keyword of a function = a function lacks an argument that its caller passes: check the versions of both
    got an unexpected keyword argument|keyword argument \S+ is not recognized
words version of a package = a package has the wrong version: install the one that the message asks for
    is required for a normal functioning of this module|(?:ContextualVersion|Version)Conflict
    |^\w*Error: .*requires [\w. -]+[<>=~]=? ?\d+\.\d
root package named = a package is missing or too old: install the one that the message names
    ^(?:Import|ModuleNotFound)Error: .*(?:requires .*(?:package|library|module|>=|==)|not installed|\binstall\b)
    |PackageNotFoundError|DistributionNotFound
    |^\w+Error: .*\bpip3? install|^ImportError: .*(?:\binstalled\b|unable to import)
root package of a tokenizer = a package that the tokenizer needs, such as sentencepiece, or one of its files is missing
    Cannot instantiate this tokenizer from a slow version|Couldn't instantiate the backend tokenizer
root processor of a model = the processor of a model cannot be loaded: check its files, and the packages it needs
    Processor was not found
root tokenizer's file = a tokenizer's file needs newer versions of tokenizers and transformers
    did not match any variant of untagged enum|Tokenizer class \w+ does not exist or is not currently imported
root files of a model = files of a model cannot be found: check its path or name, and that its download is complete
    does not appear to have a file named|no file named |Can't find 'adapter_config|Can't load (?:the )?[\w ]+ for '
    |Unable to load (?:weights|vocabulary)|Cannot find any model weights
root code of a model = a model or dataset brings its own code: pass trust_remote_code=True if you trust it
    trust_remote_code=True|requires you to execute the configuration file in that repo
root torch is too old = transformers refuses torch.load with this torch: install torch 2.6 or newer, or use safetensors
    serious vulnerability issue in `?torch\.load
root modules to train = the modules to train do not exist in this model: see target_modules
    Target modules .* not found in the base model|Please specify `?target_modules
root quantized model = a quantized model cannot be trained itself: attach adapters, or load its full weights
    fine-tuning on purely quantized models
# Megatron-LM and its users; DeepSpeed runtime/config.py; PyTorch nn/functional.py
root batch sizes = train_batch_size must be micro batch size x gradient accumulation steps x data-parallel ranks
    Check batch related parameters
root not divisible = sizes do not match: ranks, parallel sizes, batch sizes, layers or heads must divide one another
    \bdivisible by\b|must be (?:a )?multiples? of|is not a multiple of|\d ?% ?\d+ ?!= ?0|^assert .*\S % .*== ?0
# Megatron-LM core/dist_checkpointing and rerun_state_machine.py; torch optim/optimizer.py, autograd and distributions
root distributed checkpoint = a distributed checkpoint is incomplete, or does not match the model or its parallel sizes
    CheckpointingException
root location of a checkpoint = a checkpoint was saved on other devices: see map_location, and import torch_npu first
    Attempting to deserialize object on|don't know how to restore data location
root optimizer's state = the optimizer's state in a checkpoint does not match the model
    different number of parameter groups|parameter group that doesn't match
root learning rate of a checkpoint = a scheduler resumes without its optimizer: load the state of both
    param 'initial_lr' is not specified
root NaN = a value is NaN or infinite: check the data, the learning rate and the precision
    probability tensor contains|but found invalid values:|Unexpected result nan|returned nan values|Input contains NaN
    |Non-finite|\[xla\] nan|^assert .*\b(?:isfinite|isnan|isinf)\(
# torch's operators, autograd and DistributedDataParallel; collate.py; torch_npu/npu/amp/grad_scaler.py; transformers'
# attention (modeling_*.py)
root shapes in a batch = the samples of a batch have different shapes: crop or pad them, or see collate_fn
    stack expects each tensor to be equal size|each element in list of batch should be of equal size
    |Trying to resize storage that is not resizable|expects same shape|Inconsistent batch shapes
root index of an embedding = an index is out of range for an embedding: compare the vocabularies of tokenizer and model
    IndexError: index out of range in self
root label = a label is not one of the classes: check the data and the number of classes
    Target -?\d+ is out of bounds
root shapes of tensors = the shapes of tensors do not match: check the model's settings, the data and the checkpoint
    shapes cannot be multiplied|size of tensor a \(\d+\) must match|Sizes of tensors must match
    |shape '\[.*\]' is invalid for input of size|to have \d+ channels, but got|Expected input batch_size
    |must match the existing size|shape mismatch|be broadcast together|inhomogeneous shape
    |size mismatch, m1|should be of size \(|einsum\(\): .* (?:does not|size)|expected input with shape
    |should contain \d+ elements not|kernel size can't be greater|split_sizes to sum|Dimension out of range
    |tensors? must be \d-?D\b|(?:with|has|have) negative dimension|same number of dimensions|Padding size should be less
    |\bexpected (?:to be )?(?:\d-?D(?:imensional)? (?:or|\(|input|tensor)|\d or \d dim)|Can't broadcast from
root devices of tensors = tensors are on different devices: move the model and its inputs to the same one
    (?:to|must|should) be on the same device|indices should be either on|is on cpu, but expected
    |^RuntimeError: Expected \w+ tensor, please check whether the input tensor device
    |only supports single device modules|but found one of them on device
    |Input type \(torch\.(?:(?:npu|cuda)\.)?(\w+)Tensor\) and weight type \(torch\.(?:(?:npu|cuda)\.)?\1Tensor\)
root generator = a random number generator is on a different device than the tensors: create it on theirs
    device type for generator but found
root tensor to NumPy = a tensor on the device cannot be converted to NumPy: call cpu() first
    can't convert \S+ device type tensor to numpy
root types of tensors = the data types of tensors differ: convert them, or use autocast
    expected (?:object of )?scalar type \w+ but (?:found|got)|expected dtype \S+ but got|cast to the desired output type
    |type conversion of 'Parameter' is not supported
    |Found dtype \w+ but expected|must have the same dtype|to have the same dtype
    |The type of data we are trying to retrieve|Input type \(.*\) and (?:weight|bias) type
root float16 gradients = the trained parameters are in float16: load them in float32, or train in bfloat16
    Attempting to unscale FP16 gradients
root type of an operator = an operator does not support a data type on this device: is the model still on the CPU?
    not implemented for '(?:Half|BFloat16|Float8\w*|Long|Int|Bool)'
root no gradient = the loss depends on no trained parameter: all are frozen, or see enable_input_require_grads()
    does not require grad and does not have a grad_fn|DistributedDataParallel is not needed when
root no parameters = the optimizer has no parameters: all are frozen, or an iterator over them is exhausted
    optimizer got an empty parameter list
root no scaled gradient = the gradient scaler found no gradients: none were computed for the optimizer's parameters
    No inf checks were recorded
root loss = the loss is not a scalar: reduce it, for example with mean()
    grad can be implicitly created only for scalar outputs$
root parameter used twice = a parameter is used twice in a backward pass: see use_reentrant=False and static graphs
    Expected to mark a variable ready only once
root in-place = a tensor needed for the backward pass was changed in place: see torch.autograd.set_detect_anomaly
    modified by an inplace operation
root in-place change of a view = a view of a tensor was changed in place: use clone(), or an out-of-place operation
    is a view and (?:is being|its base or another view).*modified in-?place
root inference mode = a tensor of inference mode is used for training: clone it, or use no_grad() instead
    to inference tensor outside|Inference tensors cannot
root gradient of an integer = an integer parameter, such as a quantized one, cannot be trained
    Only Tensors of floating point .*can require gradients
root empty list of tensors = a list of tensors is empty: check the data
    expect(?:ed|s) a non-empty (?:list of Tensors|TensorList)
root arguments of a function of torch = a function of torch was called with arguments of the wrong types, or None
    received an invalid combination of arguments
root device of a wrapped model = the model is not on the device that DistributedDataParallel is given: move it there
    device_ids and output_device arguments only work
root pinned memory = the samples are on the device, so they cannot be pinned: keep them on the CPU
    only dense CPU tensors can be pinned
root samples of a batch = a sample is None or of a type that cannot be put into a batch: check the dataset
    default_collate: batch must contain
root arguments of a data loader = the arguments of a data loader contradict each other: see the message
    ^ValueError: .*(?:disables auto-batching|prefetch_factor option|num_workers option|sampler option)
root value of a condition = a condition has several values: use any() or all()
    Boolean value of Tensor with more than one|truth value of an array with more than one
root probabilities = the inputs of a loss are not between 0 and 1, or NaN: is a sigmoid missing?
    all elements of (?:input|target) should be between 0 and 1
root no tensor = a value cannot be converted to a tensor: look for None, strings and ragged lists in the data
    Could not infer dtype of|too many dimensions '|can't convert np\.ndarray of type|expected Tensor as element \d+ in
root internal check of torch = an internal check of torch failed: check the versions of torch and torch_npu
    INTERNAL ASSERT FAILED|something has gone horribly wrong
root layers for FSDP = the model lacks the layer class that FSDP is to wrap: check its name in the settings
    Could not find the transformer layer class
root frozen parameters in FSDP = FSDP cannot mix frozen and trained parameters: see use_orig_params=True
    Must flatten tensors with uniform `?requires_grad
root meta tensor = parameters have no data (device meta): the model was not loaded completely
    Cannot copy out of meta tensor|Tensor on device meta is not on
root batch of one = batch normalization needs more than one sample in a batch: see drop_last
    Expected more than 1 value per channel
root not contiguous = a tensor is not contiguous: use reshape() or contiguous()
    view size is not compatible with input tensor|Tensors must be contiguous
root torch.compile = torch.compile cannot compile this model: train without it, or set TORCHDYNAMO_DISABLE=1
    ^torch\._(?:dynamo|inductor)\.exc\.
# Checks of flash-attn, bitsandbytes and others; HCCL and MindSpore
root CUDA only = a feature needs a CUDA device: use its variant for NPUs, or leave it out
    (?:requires?|needs?|only supports?|only works? (?:on|with)) (?:\w+ ){0,3}(?:CUDA|NVIDIA|Ampere)\b
    |CUDA driver version is insufficient|^assert torch\.cuda\.is_available\(
root rank table = the rank table does not match the job: compare its ranks with the processes that are started
    (?:invalid|wrong|illegal) rank ?table|rank ?table .*(?:is invalid|inconsistent|not match|not equal)
# CPython multiprocessing and pickle
root pickle = an object cannot be pickled, for a file or a process: define it at the top level of a module
    Can't (?:pickle|get local (?:object|attribute)) |cannot pickle '
# CPython _posixsubprocess.c (its descriptors must differ); torch multiprocessing/reductions.py
root shared twice = a spawned process gets a shared tensor twice: clone it, or use set_sharing_strategy('file_system')
    bad value\(s\) in fds_to_keep
root start method = set_start_method was called twice: see its argument force
    context has already been set
root main module = worker processes import the main module: start the program below if __name__ == '__main__'
    has finished its bootstrapping phase
root daemonic process = a worker of a data loader or pool cannot start processes of its own
    daemonic processes are not allowed to have children
# HTTP status codes (RFC 9110) as requests, aiohttp, OBS, S3, wandb and MLflow show them; huggingface_hub; MoXing; ray
root access to a server = a server or storage service refuses access: check the token or key, and its permissions
    \b(?:stat(?:us)?(?:[ _]code)?|error(?:[ _]?code)?|code|http)\b['\"]?[:= (]{1,3}40[13]\b(?! [a-z])
    |\(40[13]\)|\b40[13],? (?:Forbidden|Unauth)|reason: ?(?:Forbidden|Unauthorized)|permission to access
    |SignatureDoesNotMatch|InvalidAccessKeyId|invalid api key
root object in a storage = an object, bucket or page does not exist: check its name
    NoSuch(?:Key|Bucket)|hub\.errors\.NotExistError|doesn't exist on the Hub
    |\b(?:stat(?:us)?(?:[ _]code)?|http)\b['\"]?[:= (]{1,3}404\b(?! [a-z])|404 (?:Client Error|Not Found)
    |\bspecified (?:bucket|key) does not exist|file or directory or bucket not found|\bget object key failed
root server failed = a server failed or is overloaded: see its log, or try again
    Internal Server Error|\b(?:429|50[0234]) (?:Client|Server) Error|(?:code|error)\W{1,3}SlowDown\b
    |Too ?Many ?Requests|Service Unavailable|Bad Gateway
    |\bstat(?:us)?(?:[ _]code)?['\"]?[:= (]{1,3}50[0234]\b(?! [a-z])
words retries = all attempts at a request have failed: see the error of the last one, the server and the network
    \bfailed after \d+ (?:retries|attempts)|\b(?:retries|attempts) exhausted
root download cut off = a download was cut off: try again
    ChunkedEncodingError|IncompleteRead|ContentTooShort|Consistency check failed
words download = a download failed: check the network, the address and the free space on the disk
    \bdownload(?:s|ed|ing)?\b.{0,40}\bfail|\bfail\w* .{0,40}\bdownload
root resources of ray = ray's cluster has fewer free devices than the job asks for: see ray status
    is less than total desired|Current node has no \w+ available|No available node types can fulfill
    |[Pp]lacement group .*time(?:d )?out
"""
