# The CMake package of mcc.
#
#   find_package(mcc REQUIRED)
#   mcc_add_model(digits digits.onnx SHAPE image=1,1,28,28)
#   target_link_libraries(app PRIVATE digits)
#
# It sets MCC_EXECUTABLE, the command, and mcc_INCLUDE_DIR, the folder of mcc.h, and defines:
#
#   mcc_add_model(<library> <model.onnx>
#                 [TARGET <target>]        as `mcc --target`; else what CMake compiles for
#                 [CPU <cpu>]              as `mcc --cpu`
#                 [NAME <identifier>]      prefix of the symbols and name of the header; else the library's name
#                 [SHAPE <input>=<extents> ...] [DIM <name>=<extent> ...]
#                 [WEIGHTS_FILE <file>]    as `mcc --weights-file`; a relative path is one in the current binary directory
#                 [OPTIONS <option> ...]   further options of mcc, in which paths are absolute
#                 [DEPENDS <file> ...])    files that are generated before the model can be compiled
#
# A static library with the compiled model, whose users find <identifier>.h. It is made again when the model, its files of
# external data, mcc or an option changes. Its properties MCC_MANIFEST and, with WEIGHTS_FILE, MCC_WEIGHTS_FILE are the paths of
# the manifest and of the file of weights, which are made with the library:
#
#   install(FILES "$<TARGET_PROPERTY:digits,MCC_WEIGHTS_FILE>" DESTINATION share/app)
#   add_custom_command(OUTPUT image ... DEPENDS digits "$<TARGET_PROPERTY:digits,MCC_WEIGHTS_FILE>")

cmake_policy(PUSH)
cmake_policy(VERSION 3.20)

get_filename_component(_mcc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(mcc_INCLUDE_DIR "${_mcc_prefix}/include")

find_program(MCC_EXECUTABLE mcc HINTS "${_mcc_prefix}/bin" NO_CMAKE_FIND_ROOT_PATH DOC "The compiler of neural networks")
if(NOT MCC_EXECUTABLE)
  set(mcc_FOUND FALSE)
  set(mcc_NOT_FOUND_MESSAGE "The command mcc was not found: put it into PATH, or give its path by -DMCC_EXECUTABLE=")
  cmake_policy(POP)
  return()
endif()
execute_process(COMMAND "${MCC_EXECUTABLE}" --version OUTPUT_VARIABLE _mcc_version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _mcc_version STREQUAL "mcc ${mcc_VERSION}")
  set(mcc_FOUND FALSE)
  set(mcc_NOT_FOUND_MESSAGE
      "${MCC_EXECUTABLE} says it is '${_mcc_version}', this package is of mcc ${mcc_VERSION}: give the mcc_DIR that `mcc --print cmake-dir` prints")
  cmake_policy(POP)
  return()
endif()

# The target of mcc for what CMake compiles for.
function(_mcc_target result)
  set(processor "${CMAKE_SYSTEM_PROCESSOR}")
  if(APPLE AND CMAKE_OSX_ARCHITECTURES)
    set(processor "${CMAKE_OSX_ARCHITECTURES}")
  elseif(MSVC AND CMAKE_C_COMPILER_ARCHITECTURE_ID)
    set(processor "${CMAKE_C_COMPILER_ARCHITECTURE_ID}")
  endif()
  if(processor MATCHES "^(x86_64|amd64|AMD64|x64|X64)$")
    set(arch x86_64)
  elseif(processor MATCHES "^(aarch64|arm64|ARM64|armv[89](\\.[0-9])?-a|cortex-a(3[45]|5[357]|6[5-9]|7[2-9]|[57][12]0)(ae|c)?|neoverse-.*)$")
    set(arch aarch64)
  else()
    message(FATAL_ERROR "mcc_add_model: mcc has no code for the processor '${processor}' (CMAKE_SYSTEM_PROCESSOR); "
                        "where that is not what is meant, give a TARGET, see `mcc targets`")
  endif()
  if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
    message(FATAL_ERROR "mcc_add_model: pointers have ${CMAKE_SIZEOF_VOID_P} bytes here; mcc has code for 64 bits only")
  endif()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(system unknown-linux-gnu)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "Android")
    set(system linux-android)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "FreeBSD")
    set(system unknown-freebsd)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
    set(system apple-darwin)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "iOS")
    set(system apple-ios)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "Windows" AND MINGW)
    set(system pc-windows-gnu)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "Windows")
    set(system pc-windows-msvc)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "Generic")
    set(system unknown-none)
  else()
    message(FATAL_ERROR "mcc_add_model: no target is known for the system '${CMAKE_SYSTEM_NAME}' (CMAKE_SYSTEM_NAME); "
                        "give a TARGET, see `mcc targets`")
  endif()
  set(${result} "${arch}-${system}" PARENT_SCOPE)
endfunction()

function(mcc_add_model library model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TARGET;CPU;NAME;WEIGHTS_FILE" "SHAPE;DIM;OPTIONS;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "mcc_add_model: '${arg_UNPARSED_ARGUMENTS}' is no argument of it")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "mcc_add_model: no value follows ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  foreach(option IN LISTS arg_OPTIONS)
    if(option MATCHES "^(-o.*|--(output|depfile|emit|name|target|weights-file|stop-after|print-after|print)(=.*)?)$")
      message(FATAL_ERROR "mcc_add_model: OPTIONS must not have ${option}, for what is made is known to CMake; "
                          "its arguments are TARGET, NAME and WEIGHTS_FILE")
    endif()
  endforeach()
  get_filename_component(model "${model}" ABSOLUTE)
  if(NOT arg_TARGET)
    _mcc_target(arg_TARGET)
  endif()
  if(NOT arg_NAME)
    string(MAKE_C_IDENTIFIER "${library}" arg_NAME)
  endif()
  set(options --target "${arg_TARGET}" --name "${arg_NAME}")
  if(arg_CPU)
    list(APPEND options --cpu "${arg_CPU}")
  endif()
  foreach(shape IN LISTS arg_SHAPE)
    list(APPEND options --shape "${shape}")
  endforeach()
  foreach(dim IN LISTS arg_DIM)
    list(APPEND options --dim "${dim}")
  endforeach()
  set(weights)
  if(arg_WEIGHTS_FILE)
    get_filename_component(weights "${arg_WEIGHTS_FILE}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    get_property(taken GLOBAL PROPERTY _mcc_weights_files)
    if(weights IN_LIST taken)
      message(FATAL_ERROR "mcc_add_model: the WEIGHTS_FILE ${weights} is that of another model")
    endif()
    set_property(GLOBAL APPEND PROPERTY _mcc_weights_files "${weights}")
    list(APPEND options --weights-file "${weights}")
  endif()
  list(APPEND options ${arg_OPTIONS})

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${library}.mcc")
  set(object "${folder}/${arg_NAME}.o")
  set(headers "${folder}/${arg_NAME}.h" "${folder}/mcc.h")
  set(manifest "${folder}/${arg_NAME}.json")
  # Make runs a changed command only where a file that it depends on changed too.
  file(GENERATE OUTPUT "${folder}/options" CONTENT "${options}\n")
  add_custom_command(
    OUTPUT "${object}" ${headers} "${manifest}" ${weights}
    COMMAND "${MCC_EXECUTABLE}" "${model}" ${options} --output "${object}" --depfile "${folder}/depfile"
    DEPENDS "${model}" "${folder}/options" "${MCC_EXECUTABLE}" ${arg_DEPENDS}
    DEPFILE "${folder}/depfile"
    COMMENT "Compiling model ${arg_NAME} for ${arg_TARGET}"
    VERBATIM)

  # What a library is made from is made again where it is not there.
  add_library(${library} STATIC "${object}" ${headers} "${manifest}" ${weights})
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  if(weights)
    set_source_files_properties("${weights}" PROPERTIES HEADER_FILE_ONLY TRUE)
    set_target_properties(${library} PROPERTIES MCC_WEIGHTS_FILE "${weights}")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(language CXX)
  if(C IN_LIST languages)
    set(language C)
  endif()
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE ${language} MCC_MANIFEST "${manifest}")
  if(arg_CPU AND arg_TARGET MATCHES "-none$")
    # No operating system tells what the CPU has, so it has what the one has that was named.
    target_compile_definitions(${library} INTERFACE MCC_CPU_FEATURES=0xffffffffu)
  endif()
  target_include_directories(${library} INTERFACE "$<BUILD_INTERFACE:${folder}>")
endfunction()

cmake_policy(POP)
